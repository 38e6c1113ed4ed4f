"""A process that holds one llama-server and ends when its parent does.

    python -m specgauge.profiler.engines.llama_host [--binary PATH --] FLAGS...

Without ``--binary`` the server is the one inside `xllamacpp`, and FLAGS are the llama-server flags of the table below, in
llama.cpp's own spelling; a flag that is not in the table is refused as llama-server refuses it. With ``--binary`` the
flags go to that program untouched. Either way the server can crash, abort or run out of memory without taking specgauge
along, and it never outlives it: this process waits on its standard input, whose other end the parent holds, and asks
Linux for a signal on the parent's death as well.
"""

import ctypes
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends; elsewhere the pipe alone serves."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_pipe(on_end: Callable[[], None]) -> None:
    """Start a thread that calls `on_end` once standard input is closed, then ends the process."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        on_end()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def run_binary(binary: str, flags: list[str]) -> int:
    """Run an external llama-server until it or the parent ends; return its exit status (negative: a signal)."""
    child = subprocess.Popen([binary, *flags], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
    print(f"server pid {child.pid}", flush=True)
    end_with_pipe(child.kill)
    return child.wait()


class FlagRefused(Exception):
    """A flag that this server does not have, or whose value it cannot read."""


def _types(x: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    prefix = "COMMON_SPECULATIVE_TYPE_"
    kinds = {
        name.removeprefix(prefix).lower().replace("_", "-"): getattr(x.common_speculative_type, name)
        for name in dir(x.common_speculative_type)
        if name.startswith(prefix) and not name.endswith("COUNT")
    }
    prefix = "GGML_TYPE_"
    values = {
        name.removeprefix(prefix).lower(): getattr(x.ggml_type, name)
        for name in dir(x.ggml_type)
        if name.startswith(prefix) and not name.endswith("COUNT")
    }
    return kinds, values


def _choice(options: dict[str, Any], value: str) -> Any:
    if value not in options:
        raise ValueError(value)
    return options[value]


def setters(x: Any, p: Any) -> dict[str, Callable[[str], None]]:
    """The flags with a value that this host understands, each with what it sets in `p` (an xllamacpp CommonParams)."""
    kinds, values = _types(x)
    spec, draft = p.speculative, p.speculative.draft
    flash = {
        "on": x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        "auto": x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO,
    }

    def put(target: Any, name: str, read: Callable[[str], Any]) -> Callable[[str], None]:
        return lambda text: setattr(target, name, read(text))

    def kv(text: str) -> Any:
        return _choice(values, text.lower())

    def layers(text: str) -> int:
        return -1 if text == "auto" else 9999 if text == "all" else int(text)

    table: dict[str, Callable[[str], None]] = {}

    def add(names: str, setter: Callable[[str], None]) -> None:
        table.update(dict.fromkeys(names.split(), setter))

    add("-m --model", put(p.model, "path", str))
    add("--host", lambda text: setattr(p, "hostnames", [text]))
    add("--port", put(p, "port", int))
    add("-c --ctx-size", put(p, "n_ctx", int))
    add("-b --batch-size", put(p, "n_batch", int))
    add("-ub --ubatch-size", put(p, "n_ubatch", int))
    add("-np --parallel", put(p, "n_parallel", int))
    add("-ngl --gpu-layers --n-gpu-layers", put(p, "n_gpu_layers", layers))
    add("-cram --cache-ram", put(p, "cache_ram_mib", int))
    add("-ctk --cache-type-k", put(p, "cache_type_k", kv))
    add("-ctv --cache-type-v", put(p, "cache_type_v", kv))
    add("-fa --flash-attn", put(p, "flash_attn_type", lambda text: _choice(flash, text)))
    add("-t --threads", put(p.cpuparams, "n_threads", int))
    add("-tb --threads-batch", put(p.cpuparams_batch, "n_threads", int))
    add("--poll", put(p.cpuparams, "poll", int))
    add("-sps --slot-prompt-similarity", put(p, "slot_prompt_similarity", float))
    add("-lv --verbosity", put(p, "verbosity", int))
    add("-s --seed", put(p.sampling, "seed", int))
    add("--temp", put(p.sampling, "temp", float))
    add("--top-k", put(p.sampling, "top_k", int))
    add("--top-p", put(p.sampling, "top_p", float))
    add("--min-p", put(p.sampling, "min_p", float))
    add("--repeat-penalty", put(p.sampling, "penalty_repeat", float))
    add("--spec-type", lambda text: setattr(spec, "types", [_choice(kinds, kind) for kind in text.split(",")]))
    add("-md --model-draft --spec-draft-model", put(draft.mparams, "path", str))
    add("-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl", put(draft, "n_gpu_layers", layers))
    add("-td --threads-draft --spec-draft-threads", put(draft.cpuparams, "n_threads", int))
    add("-tbd --threads-batch-draft --spec-draft-threads-batch", put(draft.cpuparams_batch, "n_threads", int))
    add("-ctkd --cache-type-k-draft --spec-draft-type-k", put(draft, "cache_type_k", kv))
    add("-ctvd --cache-type-v-draft --spec-draft-type-v", put(draft, "cache_type_v", kv))
    add("--spec-draft-n-max", put(draft, "n_max", int))
    add("--spec-draft-n-min", put(draft, "n_min", int))
    add("--spec-draft-p-min --draft-p-min", put(draft, "p_min", float))
    add("--spec-ngram-mod-n-match", put(spec.ngram_mod, "n_match", int))
    add("--spec-ngram-mod-n-min", put(spec.ngram_mod, "n_min", int))
    add("--spec-ngram-mod-n-max", put(spec.ngram_mod, "n_max", int))
    for kind in ("simple", "map-k", "map-k4v"):
        ngram = getattr(spec, "ngram_" + kind.replace("-", "_"))
        add(f"--spec-ngram-{kind}-size-n", put(ngram, "size_n", int))
        add(f"--spec-ngram-{kind}-size-m", put(ngram, "size_m", int))
        add(f"--spec-ngram-{kind}-min-hits", put(ngram, "min_hits", int))
    if hasattr(draft, "probabilistic"):
        modes = {"greedy": False, "probabilistic": True}
        add("--spec-draft-sampling", put(draft, "probabilistic", lambda text: _choice(modes, text)))
    if hasattr(spec, "synth_rates"):
        add("--spec-synth-len", put(spec, "synth_len", float))
        add("--spec-synth-rates", lambda text: setattr(spec, "synth_rates", [float(r) for r in text.split(",")]))
    return table


def switches(x: Any, p: Any) -> dict[str, Callable[[], None]]:
    """The flags without a value."""
    return {
        "--metrics": lambda: setattr(p, "endpoint_metrics", True),
        "--no-warmup": lambda: setattr(p, "warmup", False),
        "--no-kv-offload": lambda: setattr(p, "no_kv_offload", True),
        "-nkvo": lambda: setattr(p, "no_kv_offload", True),
        "--kv-unified": lambda: setattr(p, "kv_unified", True),
        "-kvu": lambda: setattr(p, "kv_unified", True),
        "--swa-full": lambda: setattr(p, "swa_full", True),
        "--no-mmap": lambda: setattr(p, "load_mode", x.llama_load_mode.LLAMA_LOAD_MODE_NONE),
        "--no-ui": lambda: setattr(p, "ui", False),
        "--no-webui": lambda: setattr(p, "ui", False),
    }


def parse(x: Any, flags: list[str]) -> Any:
    """Return xllamacpp's CommonParams for llama-server `flags`; raises FlagRefused with llama-server's own words."""
    p = x.CommonParams()
    p.endpoint_props = True
    valued, plain = setters(x, p), switches(x, p)
    rest = iter(flags)
    for flag in rest:
        if flag in plain:
            plain[flag]()
            continue
        if flag not in valued:
            raise FlagRefused(f"error: invalid argument: {flag}")
        value = next(rest, None)
        if value is None:
            raise FlagRefused(f"error: expected value for argument: {flag}")
        try:
            valued[flag](value)
        except (ValueError, TypeError, OverflowError):
            raise FlagRefused(f'error: invalid value for argument {flag}: "{value}"') from None
    return p


def run_embedded(flags: list[str]) -> int:
    """Serve with xllamacpp until the parent ends."""
    if flags == ["--version"]:
        from importlib.metadata import version

        print(f"version: xllamacpp {version('xllamacpp')}")
        return 0
    x: Any = importlib.import_module("xllamacpp")
    if flags == ["--help"]:
        p = x.CommonParams()
        print("\n".join([*setters(x, p), *switches(x, p), "--spec-type " + ",".join(_types(x)[0])]))
        return 0
    try:
        params = parse(x, flags)
    except FlagRefused as refused:
        print(refused, file=sys.stderr, flush=True)
        return 1
    end_with_pipe(lambda: None)
    print(f"server pid {os.getpid()}", flush=True)
    try:
        server = x.Server(params)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"listening {server.listening_address}", flush=True)
    threading.Event().wait()
    return 0


def main(arguments: list[str]) -> int:
    """Run until the server or the parent ends; return the exit status."""
    die_with_parent()
    if arguments[:1] == ["--binary"]:
        status = run_binary(arguments[1], arguments[3:])
        return 128 - status if status < 0 else status
    return run_embedded(arguments)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
