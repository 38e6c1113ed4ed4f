"""The llama.cpp engine: measurements over HTTP on llama-servers that specgauge starts, one for each set of flags.

Servers stay alive side by side while their weights fit into a part of the free memory, so that arms can be interleaved
without restarts; else the least recently used one is ended first. Rounds are rebuilt from streamed timings: all tokens of
one round carry the same predicted_ms, and the increments of draft_n and draft_n_accepted are the round's counts.
"""

import contextlib
import hashlib
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from msgspec.structs import replace

from .. import machine
from ..errors import InputError
from ..ngram import offers_and_runs
from ..records import (
    EngineInfo,
    Key,
    MatchTrace,
    ModelFile,
    PromptRun,
    PromptTrace,
    RoundSample,
    Sampling,
    Setting,
    StepSample,
    Trace,
)
from ..workloads import PromptText
from .base import EngineFailed, Likely, ReplyTokens, Unsupported
from .llama_server import LlamaServer, NoSuchPath, Refused

WARM_UP_REQUESTS = 10
WARM_UP_TOKENS = 4
DECODE_TOKENS = 12
"""Tokens of one decode sample."""
COLD_ROUNDS = 2
"""Rounds at the head of a sample that do not count: their shapes are new to the server."""
VERIFY_SLOTS = 17
"""Sequences that a server for verification passes decodes side by side at most."""
VERIFY_TOKENS = 10
MEMORY_SHARE = 0.4
"""Part of the free memory that weights of idle servers may fill."""
WORKING_SIZE = 1.3
"""Memory of a server over the size of its weights: cache, buffers."""
MOST_SERVERS = 12
"""Servers alive at once: more than the arms of a validation."""
SPECULATION_TYPES = {"model": "draft-simple", "mtp": "draft-mtp", "eagle": "draft-eagle3", "dflash": "draft-dflash"}
TABLE_DRAFTERS = ("ngram-mod", "ngram-cache", "ngram-map-k", "ngram-map-k4v")
"""Drafters that learn across requests: a repeat needs a fresh server."""
OUR_FLAGS = frozenset(
    (
        *("-m", "--model", "-hf", "--hf-repo", "-mu", "--model-url", "--host", "--port", "--api-key", "--api-key-file"),
        *(
            "-c",
            "--ctx-size",
            "-np",
            "--parallel",
            "-cram",
            "--cache-ram",
            "-md",
            "--model-draft",
            "--spec-draft-model",
        ),
        *("--spec-type", "--spec-draft-n-max", "--spec-synth-rates", "--spec-synth-len", "--draft", "--draft-max"),
        *("--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m", "--help", "-h", "--version"),
    )
)
"""What specgauge sets itself, or what would change what is compared: refused behind --."""
DRAFT_FLAGS = {
    "-td": "-t",
    "--threads-draft": "-t",
    "--spec-draft-threads": "-t",
    "-tbd": "-tb",
    "--threads-batch-draft": "-tb",
    "--spec-draft-threads-batch": "-tb",
    "-ngld": "-ngl",
    "--gpu-layers-draft": "-ngl",
    "--n-gpu-layers-draft": "-ngl",
    "--spec-draft-ngl": "-ngl",
    "-devd": "-dev",
    "--device-draft": "-dev",
    "--spec-draft-device": "-dev",
    "-ctkd": "-ctk",
    "--cache-type-k-draft": "-ctk",
    "--spec-draft-type-k": "-ctk",
    "-ctvd": "-ctv",
    "--cache-type-v-draft": "-ctv",
    "--spec-draft-type-v": "-ctv",
}
"""Flags for a draft beside its target, and what they are for a model alone: a draft is timed as it will run."""
PROBE_SECONDS = 60.0
PROBE_BYTES = 2**22
MOST_TOLD = 300
"""Characters of what a server says."""
SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")


def _output(command: list[str]) -> tuple[int, str]:
    """Exit status and the first PROBE_BYTES that `command` prints; ended with its children after PROBE_SECONDS."""
    with tempfile.TemporaryFile() as sink:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise InputError(f"{command[0]} cannot be run: {error}; is it a llama-server for this machine?") from None
        try:
            status = process.wait(PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            words = " ".join(command[-1:])
            raise InputError(
                f"{command[0]} {words} did not end in {PROBE_SECONDS:.0f} s: is it a llama-server?"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        sink.seek(0)
        return status, sink.read(PROBE_BYTES).decode(errors="replace")


def draft_alone(flags: Sequence[str]) -> list[str]:
    """What the user's `flags` say of the draft, as flags of a server that holds the draft alone."""
    words = [word for flag in flags for word in flag.split("=", 1)]
    pairs = [(DRAFT_FLAGS[name], value) for name, value in pairwise(words) if name in DRAFT_FLAGS]
    return [word for pair in pairs for word in pair]


class Round(NamedTuple):
    """One round of a streamed reply."""

    seconds: float
    drafted: int
    accepted: int


def _likely(place: dict[str, Any]) -> tuple[Likely, ...]:
    """The likeliest tokens of one place of a reply; empty where the server lists none, as at drafted tokens."""
    listed = place.get("top_logprobs") or place.get("top_probs") or ()
    logs = [
        (t["id"], t["logprob"] if "logprob" in t else math.log(t["prob"]) if t["prob"] > 0 else None) for t in listed
    ]
    return tuple(Likely(token, log) for token, log in logs if log is not None)


class LlamaCpp:
    """Engine protocol (base.py) over llama-server. `binary` None: the embedded server; `url`: one that runs already."""

    def __init__(
        self,
        models: Sequence[ModelFile],
        *,
        log_dir: Path,
        binary: str | None = None,
        url: str | None = None,
        flags: Sequence[str] = (),
        threads: int = 0,
    ):
        self._models = {model.label: model for model in models}
        self._log_dir = log_dir
        self._binary = binary
        self._url = url
        self._flags = tuple(flags)
        self._threads = threads
        self._servers: dict[tuple[str, ...], LlamaServer] = {}
        self._tokens: dict[tuple[str, str], tuple[int, ...]] = {}
        self._replies: dict[tuple[str, str], tuple[int, ...]] = {}
        self._effective: dict[tuple[str, ...], dict[str, str]] = {}
        self._started = 0
        self._counter = 0
        self._info = self._probe()
        working = WORKING_SIZE * sum(model.size_bytes for model in models)
        self._roomy = working < MEMORY_SHARE * machine.free_memory_bytes(gpu=binary is not None)

    # identity

    def describe(self) -> EngineInfo:
        return self._info

    def key(self) -> Key:
        identity = machine.identify()
        return Key(
            gpu=identity.gpu,
            gpu_uuid=identity.gpu_uuid,
            power_limit_watts=identity.power_limit_watts,
            driver=identity.driver,
            cpu=identity.cpu,
            engine="llama.cpp",
            build=self._info.build,
            backend=self._info.backend,
            flags=self._flags,
            threads=self._threads,
        )

    def _probe(self) -> EngineInfo:
        if self._url is not None:
            return self._probe_url(self._url)
        for flag in self._flags:
            if not flag or flag.split("=", 1)[0] in OUR_FLAGS:
                raise InputError(f"{flag or 'an empty word'} after -- is not to be passed on: specgauge sets it itself")
        help_text = self._ask_binary("--help")
        build = self._ask_binary("--version").strip().splitlines()
        has = {word for word in re.findall(r"--?[a-z][\w-]*", help_text)}
        if self._binary is not None and "--port" not in has:
            raise InputError(f"{self._binary} --help names no --port: this is not a llama-server; give the path of one")
        capabilities = ["rollback"]
        capabilities += ["forced-acceptance"] if "--spec-synth-rates" in has else []
        capabilities += ["ngram-simple"] if "--spec-ngram-simple-size-n" in has else []
        capabilities += ["ngram-mod"] if "--spec-ngram-mod-n-match" in has else []
        capabilities += ["probabilistic-draft"] if "--spec-draft-sampling" in has else []
        heads = {kind for kind in SPECULATION_TYPES.values() if kind != "draft-simple"}
        capabilities += sorted(kind for kind in heads if re.search(rf"\b{kind}\b", help_text))
        spellings = {
            "draft_tokens": "--spec-draft-n-max" if "--spec-draft-n-max" in has else "--draft-max",
            "draft_model": "-md",
            "speculation_type": "--spec-type" if "--spec-type" in has else "",
            "draft_p_min": "--spec-draft-p-min" if "--spec-draft-p-min" in has else "--draft-p-min",
        }
        identity = machine.identify()
        return EngineInfo(
            name="llama.cpp",
            build=" ".join(build[0].split()) if build else "unknown",
            backend=f"gpu: {identity.gpu}" if identity.gpu and self._binary else "cpu",
            command=(self._binary,) if self._binary else ("xllamacpp",),
            capabilities=tuple(capabilities),
            spellings=spellings,
        )

    def _ask_binary(self, flag: str) -> str:
        """What the server prints for `flag`; InputError where it is no llama-server at all."""
        if self._binary is None:
            try:
                version("xllamacpp")
            except PackageNotFoundError:
                raise InputError(
                    "no llama.cpp here: install the embedded one with pip install 'specgauge[demo]', "
                    "or name yours with --llama-server PATH"
                ) from None
            command = [sys.executable, "-m", "specgauge.profiler.engines.llama_host", flag]
        else:
            if shutil.which(self._binary) is None:
                raise InputError(
                    f"--llama-server {self._binary}: no such program; give the path of a llama-server binary"
                )
            command = [self._binary, flag]
        status, text = _output(command)
        if status != 0 and flag == "--help":
            last = (text.strip().splitlines() or ["no output"])[-1]
            raise InputError(f"{command[0]} --help ended with status {status}: {last}; give a llama-server binary")
        return text

    def _probe_url(self, url: str) -> EngineInfo:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"--server {url}: give a URL such as http://127.0.0.1:8080")
        try:
            server = LlamaServer(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise InputError(f"--server: {error}; give a URL such as http://127.0.0.1:8080") from None
        try:
            props = server.get("/props", timeout_seconds=PROBE_SECONDS / 4)
        except EngineFailed as error:
            raise InputError(f"--server: {error}; start a llama-server there first") from None
        finally:
            server.close()
        if not isinstance(props, dict) or "default_generation_settings" not in props:
            raise InputError(f"--server {url}: this is not a llama-server (its /props has no generation settings)")
        return EngineInfo(
            name="llama.cpp",
            build=str(props.get("build_info", "unknown")),
            backend="unknown",
            command=(url,),
            capabilities=("rollback",),
        )

    # servers

    def _flags_of(
        self, setting: Setting, forced_rates: tuple[float, ...] | None = None, draft_sampling: str = "greedy"
    ) -> list[str]:
        """The llama-server flags of a setting, the user's own last so that they win."""
        target = self._models[setting.target]
        flags = [
            "-m",
            target.path,
            "-c",
            str(setting.context * setting.streams),
            "-np",
            str(setting.streams),
            "-cram",
            "0",
        ]
        if self._threads:
            flags += ["-t", str(self._threads), "-tb", str(self._threads)]
        if (setting.kv_type_k, setting.kv_type_v) != ("f16", "f16"):
            flags += ["-ctk", setting.kv_type_k, "-ctv", setting.kv_type_v]
        flags += self._drafter_flags(setting)
        if draft_sampling != "greedy" and setting.drafter in SPECULATION_TYPES:
            if "probabilistic-draft" not in self._info.capabilities:
                raise Unsupported("this llama-server drafts greedily only (no --spec-draft-sampling)")
            flags += ["--spec-draft-sampling", draft_sampling]
        if forced_rates is not None:
            flags += ["--spec-synth-rates", ",".join(f"{rate:g}" for rate in forced_rates)]
        return [*flags, *self._flags]

    def _drafter_flags(self, setting: Setting) -> list[str]:
        if setting.drafter == "none":
            return []
        spellings = self._info.spellings
        count = str(setting.draft_tokens)
        if setting.drafter == "ngram":
            if setting.draft not in self._info.capabilities:
                raise Unsupported(f"this llama-server has no {setting.draft} drafter")
            names = ("n-match", "n-max", "n-min") if setting.draft == "ngram-mod" else ("size-n", "size-m")
            values = (str(setting.ngram_size), count, "1")
            pairs = [(f"--spec-{setting.draft}-{name}", value) for name, value in zip(names, values)]
            return ["--spec-type", setting.draft, *(word for pair in pairs for word in pair)]
        kind = SPECULATION_TYPES[setting.drafter]
        flags = [spellings["speculation_type"], kind] if spellings["speculation_type"] else []
        if setting.draft:
            flags += [spellings["draft_model"], self._models[setting.draft].path]
            if self._threads:
                flags += ["-td", str(self._threads), "-tbd", str(self._threads)]
        flags += [spellings["draft_tokens"], count]
        if setting.p_min:
            flags += [spellings["draft_p_min"], f"{setting.p_min:g}"]
        return flags

    def _server(
        self,
        setting: Setting,
        forced_rates: tuple[float, ...] | None = None,
        lane: str = "",
        draft_sampling: str = "greedy",
        more: Sequence[str] = (),
    ) -> LlamaServer:
        """The warm server of a setting, started if need be. Servers of different lanes are kept apart."""
        if self._url is not None:
            if setting.drafter != "none" or forced_rates is not None:
                raise Unsupported(
                    "a server given by --server cannot be restarted with a drafter; give --llama-server PATH"
                )
            flags: list[str] = []
        else:
            flags = [*self._flags_of(setting, forced_rates, draft_sampling), *more]
        key = (*flags, lane) if lane else tuple(flags)
        server = self._servers.pop(key, None)
        if server is None:
            server = self._start(setting, flags)
        self._servers[key] = server
        if not server.warm:
            self._warm(server)
        return server

    def _warm(self, server: LlamaServer) -> None:
        """Ten short requests."""
        for i in range(WARM_UP_REQUESTS):
            body = {"prompt": self._filler(4 + i), "n_predict": WARM_UP_TOKENS, "cache_prompt": False}
            server.post("/completion", {**body, "ignore_eos": True})
        server.warm = True

    def _start(self, setting: Setting, flags: list[str]) -> LlamaServer:
        if self._url is not None:
            return LlamaServer(self._url.rstrip("/"))
        self._make_room(self._working_bytes(setting))
        self._started += 1
        log = self._log_dir / f"server-{self._started:03d}-{setting.drafter}-{setting.draft_tokens}.log"
        server = LlamaServer.start(flags, log, self._binary)
        props = server.get("/props")
        served = str(props.get("model_path", "")) if isinstance(props, dict) else ""
        wanted = self._models[setting.target].path
        if served and Path(served).name != Path(wanted).name:
            server.close()
            raise EngineFailed(f"the server at {server.url} serves {served}, not {wanted}; is a wrapper in between?")
        return server

    def _working_bytes(self, setting: Setting) -> float:
        draft = self._models.get(setting.draft)
        return WORKING_SIZE * (self._models[setting.target].size_bytes + (draft.size_bytes if draft else 0))

    def _make_room(self, wanted_bytes: float) -> None:
        """End least recently used servers until the new one finds its share of memory free."""
        gpu = self._binary is not None
        while self._servers and (
            len(self._servers) >= MOST_SERVERS or wanted_bytes > MEMORY_SHARE * machine.free_memory_bytes(gpu)
        ):
            oldest = next(iter(self._servers))
            self._servers.pop(oldest).close()

    def warm_up(self, setting: Setting, forced_rates: tuple[float, ...] | None = None) -> None:
        self._server(setting, forced_rates)

    def reset(self, setting: Setting) -> None:
        if setting.draft in TABLE_DRAFTERS and self._url is None:
            server = self._servers.pop(tuple(self._flags_of(setting)), None)
            if server is not None:
                server.close()

    def effective(self, setting: Setting) -> dict[str, str]:
        return self._effective.get(tuple(self._flags_of(setting)) if self._url is None else (), {})

    def close(self) -> None:
        while self._servers:
            self._servers.popitem()[1].close()

    # requests

    def _filler(self, tokens: int) -> list[int]:
        """A fixed list of token ids that says nothing; step times depend on counts, not on what the tokens are."""
        vocabulary = 30000
        return [random.Random(i).randrange(1000, vocabulary) for i in range(tokens)]

    def _tokenize(self, server: LlamaServer, target: str, prompt: PromptText) -> list[int]:
        known = (target, prompt.prompt.text_sha256)
        if known not in self._tokens:
            content = self._templated(server, prompt) if prompt.messages else prompt.text
            answer = server.post("/tokenize", {"content": content, "add_special": True, "parse_special": True})
            self._tokens[known] = tuple(answer["tokens"])
        return list(self._tokens[known])

    def _templated(self, server: LlamaServer, prompt: PromptText) -> str:
        """The messages as the server's chat endpoint would put them to the model."""
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        answer: Any = None
        try:
            answer = server.post("/apply-template", {"messages": messages})
        except NoSuchPath:
            pass
        except Refused as error:
            raise Unsupported(f"its messages do not go into the chat template ({str(error)[:MOST_TOLD]})") from None
        if not isinstance(answer, dict) or not isinstance(answer.get("prompt"), str):
            raise Unsupported("this llama-server has no /apply-template: give prompts as text, the template put on")
        return answer["prompt"]

    def prompt_tokens(self, setting: Setting, prompts: Sequence[PromptText]) -> Generator[int, None, None]:
        server = self._start(setting, self._flags_of(setting) if self._url is None else [])
        try:
            for prompt in prompts:
                yield len(self._tokenize(server, setting.target, prompt))
        finally:
            server.close()

    def _body(self, prompt: Sequence[int], new_tokens: int, sampling: Sampling) -> dict[str, Any]:
        return {
            "prompt": list(prompt),
            "n_predict": new_tokens,
            "ignore_eos": True,
            "cache_prompt": False,
            "return_tokens": True,
            **{field: getattr(sampling, field) for field in SAMPLING_FIELDS},
        }

    def _check_effective(self, setting: Setting, settings: dict[str, Any], sampling: Sampling) -> None:
        """Keep what the engine says it used; a sampling value other than the one sent ends the measurement."""
        for field in SAMPLING_FIELDS:
            sent = float(getattr(sampling, field))
            used = settings.get(field)
            if used is None or abs(float(used) - sent) > 1e-6 * max(1.0, abs(sent)):
                raise EngineFailed(f"the engine used {field} {used} where {sent:g} was sent: forecasts would not hold")
        self._keep_effective(setting, settings)

    def _keep_effective(self, setting: Setting, settings: dict[str, Any]) -> None:
        words = {name: str(value) for name, value in settings.items() if isinstance(value, str | int | float)}
        self._effective[tuple(self._flags_of(setting)) if self._url is None else ()] = words

    def run(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> PromptRun:
        server = self._server(setting, draft_sampling=sampling.draft_sampling)
        ids = self._tokenize(server, setting.target, prompt)
        began = time.monotonic()
        answer = server.post("/completion", self._body(ids, prompt.prompt.new_tokens, sampling))
        wall = time.monotonic() - began
        server.cached = ()
        timings = self._timings(answer)
        self._check_effective(setting, answer.get("generation_settings", {}), sampling)
        reply = tuple(answer.get("tokens") or ())
        if setting.drafter == "none" and reply:
            self._replies[setting.target, prompt.prompt.text_sha256] = reply
        return PromptRun(
            prompt=prompt.prompt,
            repeat=0,
            prompt_tokens=timings["prompt_n"],
            reply_tokens=timings["predicted_n"],
            decode_seconds=timings["predicted_ms"] / 1e3,
            prefill_seconds=timings["prompt_ms"] / 1e3,
            wall_seconds=wall,
            drafted=timings.get("draft_n", 0),
            accepted=timings.get("draft_n_accepted", 0),
            reply_sha256=hashlib.sha256(repr(reply).encode()).hexdigest()[:16],
        )

    def reply(
        self,
        setting: Setting,
        prompt: PromptText,
        sampling: Sampling,
        *,
        after: Sequence[int] = (),
        new_tokens: int | None = None,
        likely: int = 0,
        sampled: bool = False,
        cached: bool = False,
    ) -> ReplyTokens:
        server = self._server(setting, draft_sampling=sampling.draft_sampling)
        ids = [*self._tokenize(server, setting.target, prompt), *after]
        count = prompt.prompt.new_tokens if new_tokens is None else new_tokens
        body = {**self._body(ids, count, sampling), "cache_prompt": cached}
        answer = server.post("/completion", {**body, "n_probs": likely, "post_sampling_probs": sampled and likely > 0})
        server.cached = ()
        timings = self._timings(answer)
        self._keep_effective(setting, answer.get("generation_settings", {}))
        if not answer.get("tokens"):
            raise Unsupported("this llama-server does not return token ids")
        return ReplyTokens(
            tokens=tuple(answer["tokens"]),
            likely=tuple(_likely(place) for place in answer.get("completion_probabilities") or ()),
            drafted=timings.get("draft_n", 0),
            accepted=timings.get("draft_n_accepted", 0),
        )

    def _timings(self, answer: dict[str, Any]) -> dict[str, Any]:
        timings = answer.get("timings") if isinstance(answer, dict) else None
        if not isinstance(timings, dict) or "predicted_ms" not in timings or "prompt_n" not in timings:
            raise EngineFailed("the engine's answer has no timings: is this a llama-server of 2024 or newer?")
        return timings

    def _stream_rounds(
        self, events: Generator[dict[str, Any], None, None], most: int | None = None
    ) -> tuple[list[Round], dict[str, Any]]:
        """Rounds of a streamed reply, without the first token, and the final event; the stream is left after `most`."""
        marks: list[tuple[float, int, int]] = []
        final: dict[str, Any] = {}
        with contextlib.closing(events):
            for event in events:
                if event.get("stop"):
                    final = event
                    break
                if "error" in event:
                    raise EngineFailed(f"llama-server broke off a reply: {event['error']}")
                timings = self._timings(event)
                mark = (timings["predicted_ms"], timings.get("draft_n", 0), timings.get("draft_n_accepted", 0))
                if not marks or mark[0] != marks[-1][0]:
                    marks.append(mark)
                if most is not None and len(marks) > most:
                    break
        rounds = [
            Round((after[0] - before[0]) / 1e3, after[1] - before[1], after[2] - before[2])
            for before, after in pairwise(marks)
        ]
        return rounds, final

    # step and round times

    def _prime(self, server: LlamaServer, ids: list[int]) -> None:
        """Have exactly `ids` at the head of the server's cache."""
        if server.cached == tuple(ids):
            return
        server.post("/completion", {"prompt": [*ids, 999], "n_predict": 1, "cache_prompt": True, "temperature": 0})
        server.cached = tuple(ids)

    def _plain(self, model: str, context: int) -> Setting:
        return Setting(target=model, target_quant=self._models[model].quant, context=max(2048, context + 512))

    def step_time(self, model: str, role: str, kind: str, width: int, context: int, streams: int = 1) -> StepSample:
        if streams != 1:
            raise Unsupported("step times over HTTP are for one stream")
        if kind == "verify":
            return self._verify_step(model, role, width, context)
        if role == "sentinel" and (self._url is not None or not self._roomy):
            raise Unsupported("no memory for a second server beside the measured one: drift is not divided out")
        # The sentinel has a server of its own: its cached context would push out that of the measured steps.
        lane = "sentinel" if role == "sentinel" else ""
        more = draft_alone(self._flags) if role == "draft" else ()
        server = self._server(self._plain(model, context), lane=lane, more=more)
        ids = self._filler(context)
        self._prime(server, ids)
        processor = server.processor_seconds()
        if kind == "decode":
            body = {"prompt": ids, "n_predict": DECODE_TOKENS + 2, "temperature": 0, "cache_prompt": True}
            rounds, _ = self._stream_rounds(server.stream({**body, "ignore_eos": True, "timings_per_token": True}))
            seconds = tuple(r.seconds for r in rounds[1:])
        else:
            self._counter += 1
            fresh = [2000 + (self._counter * 31 + 7 * i) % 20000 for i in range(width)]
            timings = self._timings(
                server.post(
                    "/completion", {"prompt": [*ids, *fresh], "n_predict": 1, "temperature": 0, "cache_prompt": True}
                )
            )
            if timings["prompt_n"] != width or timings.get("cache_n", context) != context:
                server.cached = ()
                raise Unsupported(
                    f"asked to process {width} tokens behind {context} cached ones, the server processed "
                    f"{timings['prompt_n']} (a model that cannot be rolled back, or a prompt cache of another size)"
                )
            seconds = (timings["prompt_ms"] / 1e3,)
        used = server.processor_seconds()
        # Over the whole request: told where that is a single pass.
        thread = (used - processor,) if used is not None and processor is not None and len(seconds) == 1 else ()
        return StepSample(
            model=model, role=role, kind=kind, width=width, context=context, seconds=seconds, thread_seconds=thread
        )

    def _verify_step(self, model: str, role: str, width: int, context: int) -> StepSample:
        """Passes over `width` tokens with an output row for each: as many sequences that decode side by side.

        A prompt's pass, which "batch" times, computes the output head for its last row only; a verification needs all.
        """
        if self._url is not None:
            raise Unsupported("a server given by --server has not the slots for concurrent sequences")
        if width > VERIFY_SLOTS:
            raise Unsupported(f"at most {VERIFY_SLOTS} sequences are decoded side by side")
        slot_tokens = -(-(context + VERIFY_TOKENS + 2) // 256) * 256
        setting = replace(self._plain(model, context), context=slot_tokens, streams=VERIFY_SLOTS)
        try:
            server = self._server(setting)
        except EngineFailed as error:
            raise Unsupported(f"no server with {VERIFY_SLOTS} slots: {error}") from None
        ids = self._filler(context - 1)
        with ThreadPoolExecutor(width) as pool:
            marks = list(pool.map(lambda slot: self._marks(server, [*ids, 2000 + slot], slot), range(width)))
        begin, end = max(own[0][0] for own in marks), min(own[-1][0] for own in marks)
        last = max(marks, key=lambda own: own[0][0])
        seconds = tuple(after[1] - before[1] for before, after in pairwise(last) if after[0] <= end)
        if len(seconds) < 2 or end <= begin:
            raise Unsupported(f"{width} sequences did not decode side by side for long enough")
        return StepSample(model=model, role=role, kind="verify", width=width, context=context, seconds=seconds)

    def _marks(self, server: LlamaServer, prompt: list[int], slot: int) -> list[tuple[float, float]]:
        """Of each token of one sequence: when it came, and the server's decode seconds so far."""
        body = {"prompt": prompt, "n_predict": VERIFY_TOKENS, "temperature": 0, "cache_prompt": True, "id_slot": slot}
        marks = []
        with contextlib.closing(server.stream({**body, "ignore_eos": True, "timings_per_token": True})) as events:
            for event in events:
                if event.get("stop"):
                    break
                marks.append((time.monotonic(), self._timings(event)["predicted_ms"] / 1e3))
        if not marks:
            raise Unsupported("the server sent no tokens one by one")
        return marks

    def round_time(
        self, setting: Setting, forced_rates: tuple[float, ...] | None, context: int, rounds: int
    ) -> RoundSample:
        if forced_rates is not None and "forced-acceptance" not in self._info.capabilities:
            raise Unsupported("this llama-server cannot force acceptance (no --spec-synth-rates)")
        server = self._server(setting, forced_rates)
        ids = self._filler(context)
        self._prime(server, ids)
        body = {"prompt": ids, "temperature": 0, "cache_prompt": True, "ignore_eos": True, "timings_per_token": True}
        # The engine drafts less towards the end of a reply, so that the end is never reached: the stream is left before.
        longest = (rounds + COLD_ROUNDS + 1) * (setting.draft_tokens + 1)
        found, _ = self._stream_rounds(server.stream({**body, "n_predict": longest}), most=rounds + COLD_ROUNDS)
        full = [r for r in found[COLD_ROUNDS:] if r.drafted == setting.draft_tokens]
        if not full:
            raise Unsupported(f"no round of {setting.draft_tokens} drafted tokens came about")
        return RoundSample(
            setting=setting,
            forced_rates=forced_rates,
            context=context,
            seconds=tuple(r.seconds for r in full),
            drafted=tuple(r.drafted for r in full),
            accepted=tuple(r.accepted for r in full),
        )

    def rounds(self, setting: Setting, prompts: Sequence[PromptText], sampling: Sampling) -> Trace:
        server = self._server(setting, draft_sampling=sampling.draft_sampling)
        traces = []
        for prompt in prompts:
            ids = self._tokenize(server, setting.target, prompt)
            body = {**self._body(ids, prompt.prompt.new_tokens, sampling), "timings_per_token": True}
            rounds, final = self._stream_rounds(server.stream(body))
            server.cached = ()
            self._check_effective(setting, final.get("generation_settings", {}), sampling)
            traces.append(
                PromptTrace(
                    prompt=prompt.prompt,
                    prompt_tokens=self._timings(final)["prompt_n"],
                    reply_tokens=self._timings(final)["predicted_n"],
                    seconds=tuple(r.seconds for r in rounds),
                    drafted=tuple(r.drafted for r in rounds),
                    accepted=tuple(r.accepted for r in rounds),
                )
            )
        return Trace(setting=setting, sampling=sampling, prompts=tuple(traces))

    def match_trace(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> MatchTrace:
        if setting.draft != "ngram-simple":
            raise Unsupported(f"matches of {setting.draft or setting.drafter} come from its rounds")
        plain = Setting(target=setting.target, target_quant=setting.target_quant, context=setting.context)
        if (setting.target, prompt.prompt.text_sha256) not in self._replies:
            self.run(plain, prompt, sampling)
        reply = self._replies.get((setting.target, prompt.prompt.text_sha256))
        if reply is None:
            raise Unsupported("this llama-server does not return token ids")
        ids = self._tokenize(self._server(plain), setting.target, prompt)
        offer, run = offers_and_runs(ids, reply, setting.ngram_size)
        return MatchTrace(
            target=setting.target,
            drafter=setting.drafter,
            draft=setting.draft,
            ngram_size=setting.ngram_size,
            prompt=prompt.prompt,
            prompt_tokens=len(ids),
            reply_tokens=len(reply),
            offer=offer,
            run=run,
            source="replay",
        )
