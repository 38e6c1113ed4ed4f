"""One script for a rented GPU: eight minutes, no network, models of random weights in real shapes.

    python tools/gpu_check.py [--out DIR] [--site DIR]     on the GPU
    python tools/gpu_check.py --tiny                       the same on the CPU, in shapes that take seconds
    python tools/gpu_check.py --pack DIR [--python 3.12]   beforehand, where there is a network: what a CUDA image lacks

It wants torch, transformers, safetensors, numpy, scipy, pandas and nvidia-ml-py; msgspec, jinja2 and plotly come from --site.
Measured: memory bandwidth; passes of an 8B-class model in bf16, int8 and int4 over 1 to 17 tokens behind 512 and 4,096, captured
and eager; a 27B-class model in int4 with a 0.6B-class draft in int8, its rounds at draft tokens 1, 6 and 12. From these 2, 4 and 8
are forecast and then run. Written to DIR (default gpu-check/): profile-passes.json, profile.json, calibration.json,
recommendation.json, validation.json, report.html. The table comes last. Exit code 0: everything was measured; 1: something was not.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CARRIED = ("msgspec", "jinja2", "plotly")
MOST_SECONDS = 480.0
RATE = 0.8
"""Chance that a token is accepted after those before it, forced in the rounds that are forecast."""
LENGTHS = (1, 2, 4, 6, 8, 12)
FITTED = (1, 6, 12)
WIDTHS = tuple(range(1, 18))
SAMPLES = 6
"""Rounds of one sample; there are REPEATS of them at each length."""
REPEATS = 5


@dataclass(frozen=True)
class Scale:
    """What is measured: shapes by class, contexts, repeats."""

    dense: dict[str, int]
    target: dict[str, int]
    draft: dict[str, int]
    contexts: tuple[int, ...]
    round_context: int
    repeats: int


FULL = Scale(
    dense={"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 14336, "vocab_size": 128256},
    target={"hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
            "intermediate_size": 22016, "vocab_size": 151936},
    draft={"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
           "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "tie_word_embeddings": True},
    contexts=(512, 4096), round_context=512, repeats=REPEATS,
)  # fmt: skip
TINY = Scale(
    dense={"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
           "intermediate_size": 512, "vocab_size": 2048},
    target={"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2,
            "intermediate_size": 1024, "vocab_size": 2048},
    draft={"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
           "intermediate_size": 512, "vocab_size": 2048, "tie_word_embeddings": True},
    contexts=(64, 256), round_context=64, repeats=3,
)  # fmt: skip


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Check forecasts of the transformers engine on a GPU.")
    parser.add_argument("--tiny", action="store_true", help="small shapes, on the CPU where there is no GPU")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    parser.add_argument("--site", type=Path, default=ROOT / "gpu-check-site", help="folder that --pack made")
    parser.add_argument("--pack", type=Path, metavar="DIR", help="put what a CUDA image lacks into DIR, and end")
    parser.add_argument(
        "--python", default="", metavar="3.12", help="version of the other machine's Python, for --pack"
    )
    return parser.parse_args()


def pack(folder: Path, python: str) -> int:
    """Install CARRIED into `folder`."""
    other = ["--python-version", python, "--only-binary=:all:"] if python else []
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--upgrade",
        "--target",
        str(folder),
        *other,
        *CARRIED,
    ]
    return subprocess.run(command).returncode


def make_importable(site: Path, scratch: Path) -> None:
    """Have `import specgauge` find this checkout, whatever its folder is called, and CARRIED packages in `site`."""
    if site.is_dir():
        sys.path.append(str(site))
    (scratch / "specgauge").symlink_to(ROOT, target_is_directory=True)
    sys.path.insert(0, str(scratch))


class Budget:
    """The time that is left; what would not fit is left out, and said."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds
        self._began = time.monotonic()
        self.left_out: list[str] = []

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began

    def allows(self, what: str, seconds: float) -> bool:
        """Whether `what`, which needs about so many seconds, still fits."""
        if time.monotonic() + seconds < self._end:
            return True
        self.left_out.append(what)
        return False


def config_folder(base: Path, name: str, shape: dict[str, int]) -> Path:
    """A folder with nothing but a config.json of this shape."""
    folder = base / name
    folder.mkdir(parents=True)
    fields = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192, **shape}
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def taken(engine, profile, requests: Sequence, prompts: Sequence, clock: Callable[[], float]):
    """The profile with the measurements of `requests`."""
    from msgspec.structs import replace

    from specgauge.profiler.protocol import execute

    found = []
    for request in requests:
        subject = request.model or "".join(f"{one.draft_tokens} draft tokens" for one in request.settings)
        print(f"  {request.action} {subject}".rstrip(), flush=True)
        found.append(execute(engine, request, profile, prompts, clock))
    return replace(profile, measurements=(*profile.measurements, *found), profile_seconds=clock(), complete=True)


def blank(engine, models: tuple, candidates: tuple, prompts: tuple, sentinel: str = ""):
    """A profile without measurements."""
    import specgauge
    from specgauge.profiler.records import Profile, Sampling

    return Profile(
        created=stamp(),
        tool_version=specgauge.__version__,
        key=engine.key(),
        engine=engine.describe(),
        models=models,
        prompts=tuple(prompt.prompt for prompt in prompts),
        sampling=Sampling(),
        candidates=candidates,
        sentinel_model=sentinel,
    )


def measured_passes(base: Path, scale: Scale, device: str, budget: Budget):
    """Bandwidth, and t(n) of the dense model in bf16, int8 and int4; each engine is closed before the next one loads."""
    from specgauge.profiler.engines.transformers.description import described
    from specgauge.profiler.engines.transformers.engine import Transformers
    from specgauge.profiler.records import Request

    folder, began, profile = config_folder(base, "dense-8b-class", scale.dense), time.monotonic(), None
    for quant in ("bf16", "int8", "int4"):
        if not budget.allows(f"passes in {quant}", 60):
            continue
        model = described(folder, quant, True)
        engine = Transformers([model], device=device, threads=1)
        wanted = [Request(action="bandwidth")] if profile is None else []
        wanted.append(
            Request(
                action="steps",
                model=model.label,
                role="target",
                widths=WIDTHS,
                contexts=scale.contexts,
                repeats=scale.repeats,
            )
        )
        own = taken(engine, blank(engine, (model,), (), ()), wanted, (), lambda: time.monotonic() - began)
        profile = own if profile is None else _joined(profile, own)
        captured_and_eager(engine, model.label, scale.contexts[0])
        engine.close()
    return profile


def _joined(first, second):
    from msgspec.structs import replace

    return replace(
        first, models=(*first.models, *second.models), measurements=(*first.measurements, *second.measurements)
    )


def captured_and_eager(engine, label: str, context: int) -> None:
    """Print a plain step captured as a graph beside the same one eager."""
    import torch

    from specgauge.profiler.engines.transformers import passes
    from specgauge.profiler.engines.transformers.filler import Filler
    from specgauge.profiler.engines.transformers.sampling import Sampler
    from specgauge.profiler.records import Sampling

    filler = engine._models.filler(label, "target", context + 64)
    eager = Filler(type(filler.decoder)(filler.decoder.model, room=filler.decoder.room, graphs=False))
    sampler, seconds = Sampler(Sampling()), {"captured": [], "eager": []}
    with torch.inference_mode():
        for _ in range(4):
            for name, one in (("captured", filler), ("eager", eager)):
                seconds[name] += [span.wall for span in passes.plain_steps(one, sampler, context)]
    told = ", ".join(f"{name} {1e3 * statistics.median(values):.2f} ms" for name, values in seconds.items())
    why = f" ({filler.decoder.eager_because})" if filler.decoder.eager_because else ""
    print(f"  {label}, plain step behind {context}: {told}{why}", flush=True)


def measured_pair(base: Path, scale: Scale, device: str):
    """Profile, engine, prompts and clock of the int4 target with its int8 draft: steps, plain runs, rounds at FITTED."""
    from specgauge.profiler.engines.transformers.description import described
    from specgauge.profiler.engines.transformers.engine import Transformers
    from specgauge.profiler.records import Candidate, Request
    from specgauge.profiler.workloads import prompt_text

    target = described(config_folder(base, "target-27b-class", scale.target), "int4", True)
    draft = described(config_folder(base, "draft-0.6b-class", scale.draft), "int8", True)
    engine = Transformers([target, draft], device=device, threads=1)
    candidate = Candidate(
        target=target.label, target_quant="int4", drafter="model", draft=draft.label, draft_quant="int8",
        draft_tokens=LENGTHS, kv_type_k="bf16", kv_type_v="bf16", context=2048,
    )  # fmt: skip
    prompts = (prompt_text("forced/one", "forced", "prose", "abcd" * scale.round_context, 48),)
    began = time.monotonic()
    clock = lambda: time.monotonic() - began
    profile = blank(engine, (target, draft), (candidate,), prompts, target.label)
    contexts = (scale.round_context, 2 * scale.round_context)
    steps = {"action": "steps", "contexts": contexts, "repeats": scale.repeats}
    wanted = [
        Request(action="bandwidth"),
        Request(action="runs", settings=(candidate.setting(0),), workloads=("forced",), repeats=scale.repeats),
        Request(**steps, model=target.label, role="target", widths=WIDTHS),
        Request(**steps, model=draft.label, role="draft", widths=(1, 2)),
        *(rounds_at(candidate, length, scale, None) for length in FITTED),
    ]
    return taken(engine, profile, wanted, prompts, clock), engine, prompts, clock


def rounds_at(candidate, length: int, scale: Scale, rate: float | None):
    """Rounds of this length, nothing accepted or by a forced rate."""
    from specgauge.profiler.records import Request

    rates = tuple(rate ** (i + 1) for i in range(length)) if rate else (0.0,) * length
    return Request(
        action="rounds",
        settings=(candidate.setting(length),),
        contexts=(scale.round_context,),
        repeats=scale.repeats,
        forced_rates=rates,
    )


def forecasts_checked(profile, engine, prompts, clock, scale: Scale):
    """Calibration, recommendation at the forced acceptance, and the validation of every length by fresh rounds."""
    import specgauge
    from specgauge.calibrate.fit import calibrate
    from specgauge.calibrate.recommend import recommend
    from specgauge.profiler.files import record_digest

    calibrated = calibrate(profile).with_survival(tuple(RATE ** (i + 1) for i in range(max(LENGTHS))))
    calibration = calibrated.record(record_digest(profile), stamp(), specgauge.__version__)
    recommendation = recommend(
        profile,
        calibrated,
        profile_sha256=record_digest(profile),
        calibration_sha256=record_digest(calibration),
        created=stamp(),
        tool_version=specgauge.__version__,
        command="",
    )
    candidate = profile.candidates[0]
    fresh = taken(
        engine, profile, [rounds_at(candidate, length, scale, RATE) for length in LENGTHS], prompts, clock
    ).measurements[-len(LENGTHS) :]
    rows = tuple(_row(calibrated, one) for one in fresh)
    return calibration, recommendation, _validation(profile, rows, record_digest(calibration), recommendation.level)


def _row(calibrated, measurement):
    """A length's forecast beside its rounds: expected tokens of a round over its seconds, the drift divided out."""
    from specgauge.calibrate.records import ValidationRow
    from specgauge.profiler.protocol import plain_setting

    setting = measurement.request.settings[0]
    told = calibrated.forecast(setting, "forced")
    plain = calibrated.forecast(plain_setting(calibrated.profile, setting.target), "forced").tokens_per_second.value
    reference = calibrated.drift.reference_seconds
    expected = 1 + sum(RATE ** (i + 1) for i in range(setting.draft_tokens))
    seconds = [
        statistics.fmean(sample.seconds)
        * (reference / sample.sentinel_seconds if reference and sample.sentinel_seconds else 1)
        for sample in measurement.rounds
    ]
    speeds = tuple(expected / one for one in seconds)
    measured = statistics.median(speeds)
    counts = [(sum(sample.accepted), sum(sample.drafted)) for sample in measurement.rounds]
    return ValidationRow(
        workload="forced",
        config=setting,
        in_profile=setting.draft_tokens in FITTED,
        round_time_source=told.round_time_source,
        forecast=told.tokens_per_second.value,
        low=told.tokens_per_second.low,
        high=told.tokens_per_second.high,
        measured=measured,
        measured_raw=expected / statistics.median(statistics.fmean(sample.seconds) for sample in measurement.rounds),
        measured_low=min(speeds),
        measured_high=max(speeds),
        error=told.tokens_per_second.value / measured - 1,
        speed_up=measured / plain,
        speed_up_low=min(speeds) / plain,
        speed_up_high=max(speeds) / plain,
        repeats=len(speeds),
        speeds=speeds,
        end_to_end_tokens_per_second=measured,
        accepted=sum(accepted for accepted, _ in counts),
        drafted=sum(drafted for _, drafted in counts),
        tokens_per_round_forecast=expected,
    )


def _validation(profile, rows, calibration_sha256: str, level: float):
    import specgauge
    from specgauge.calibrate.records import Validation

    unrun = [row for row in rows if not row.in_profile]
    best = max(row.measured for row in rows)
    chosen = max(rows, key=lambda row: row.forecast)
    return Validation(
        created=stamp(),
        tool_version=specgauge.__version__,
        calibration_sha256=calibration_sha256,
        rows=rows,
        n_rows=len(unrun),
        level=level,
        mean_abs_error=statistics.fmean(abs(row.error) for row in unrun),
        worst_abs_error=max(abs(row.error) for row in unrun),
        near_best_mean_abs_error=None,
        coverage=statistics.fmean(row.low <= row.measured <= row.high for row in unrun),
        interval_score=None,
        by_drafter={},
        regret=1 - chosen.measured / best,
        regret_low=0.0,
        profile_seconds=profile.profile_seconds,
        sweep_seconds=0.0,
        sweep_measured=False,
        warnings=(f"acceptance was forced at {RATE} a token: real cost, no real text",),
    )


def correct_on_device(device: str) -> str:
    """Greedy speculation against plain decoding on this device, with a small random model in fp32 and a perturbed copy."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from specgauge.profiler.engines.transformers.decoder import Decoder
    from specgauge.profiler.engines.transformers.drafters import ModelDrafter
    from specgauge.profiler.engines.transformers.rounds import Loop
    from specgauge.profiler.engines.transformers.sampling import Sampler
    from specgauge.profiler.records import Sampling

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.3, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    target, draft = (LlamaForCausalLM(config).eval().requires_grad_(False) for _ in range(2))
    for model in (target, draft):
        model.to(device=device)  # pyright: ignore[reportCallIssue]
    draft.load_state_dict(
        {name: value * (1 + 0.05 * torch.randn_like(value)) for name, value in target.state_dict().items()}
    )
    sampler, equal, accepted, drafted = Sampler(Sampling()), 0, 0, 0
    for prompt in range(10):
        text = [(7 * prompt + 13 * i) % 512 for i in range(12)]
        plain = Loop(Decoder(target, room=256), sampler).replies([text], 64).tokens
        found = Loop(Decoder(target, room=256), sampler, ModelDrafter(Decoder(draft, room=256), sampler)).replies(
            [text], 64, 4
        )
        equal += found.tokens == plain
        accepted += sum(one.accepted[0] for one in found.rounds)
        drafted += sum(one.drafted[0] for one in found.rounds)
    return f"greedy speculation in fp32: {equal} of 10 texts of 64 tokens equal plain decoding, {accepted} of {drafted} accepted"


def pass_table(profile, contexts: Sequence[int]) -> None:
    """t(n) by quantization and context, in ms, with the share of bandwidth at n = 1."""
    rates = [rate for m in profile.measurements for one in m.bandwidth for rate in one.bytes_per_second]
    bandwidth = statistics.median(rates) if rates else float("nan")
    print(f"\nmemory bandwidth {bandwidth / 1e9:.0f} GB/s (median of {len(rates)} readings); passes in ms at n =")
    print(f"{'':34}" + "".join(f"{width:>7}" for width in WIDTHS) + "   of bandwidth")
    for model in profile.models:
        for context in contexts:
            times = {
                width: statistics.median(
                    second
                    for m in profile.measurements
                    for s in m.steps
                    if (s.model, s.width, s.context, s.cold) == (model.label, width, context, False)
                    for second in s.seconds
                )
                for width in WIDTHS
            }
            share = (model.size_bytes - model.unread_bytes) / times[1] / bandwidth
            cells = "".join(f"{1e3 * seconds:7.2f}" for seconds in times.values())
            print(f"{model.quant:6} behind {context:5} ({model.size_bytes / 1e9:5.2f} GB)     {cells}   {share:.0%}")


def round_table(validation) -> None:
    """Forecast beside measurement, a line a draft length."""
    print(f"\n{'draft tokens':>12} {'forecast tokens/s':>18} {'95 %':>16} {'measured':>9} {'error':>7} {'speed-up':>9}")
    for row in validation.rows:
        bounds = f"{row.low:.1f} to {row.high:.1f}"
        source = "in profile" if row.in_profile else "forecast before it was run"
        print(
            f"{row.config.draft_tokens:12d} {row.forecast:18.1f} {bounds:>16} {row.measured:9.1f} {row.error:+7.1%} "
            f"{row.speed_up:9.2f}  {source}"
        )
    print(
        f"mean error {validation.mean_abs_error:.1%}, worst {validation.worst_abs_error:.1%} over {validation.n_rows} lengths "
        f"that were not profiled; coverage {validation.coverage:.0%}; acceptance forced at {RATE} a token"
    )


def main() -> int:
    """Measure, write, print."""
    given = arguments()
    if given.pack:
        return pack(given.pack, given.python)
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as scratch:
        make_importable(given.site, Path(scratch))
        try:
            import msgspec  # noqa: F401
            import torch
            import transformers
        except ImportError as error:
            print(
                f"gpu_check: {error}; make a folder with --pack where there is a network, and name it with --site",
                file=sys.stderr,
            )
            return 1
        if not given.tiny and not torch.cuda.is_available():
            print("gpu_check: torch finds no GPU here; --tiny runs on the CPU", file=sys.stderr)
            return 1
        transformers.logging.set_verbosity_error()
        return checked(
            given.out, Path(scratch), TINY if given.tiny else FULL, "cuda" if torch.cuda.is_available() else "cpu"
        )


def checked(out: Path, scratch: Path, scale: Scale, device: str) -> int:
    """The check on `device`; files to `out`."""
    import torch

    from specgauge.profiler.files import write_record

    if device == "cpu":
        torch.set_num_threads(1)
    budget = Budget(MOST_SECONDS)
    out.mkdir(parents=True, exist_ok=True)
    print(f"pair: int4 target, int8 draft on {device}", flush=True)
    profile, engine, prompts, clock = measured_pair(scratch, scale, device)
    write_record(out / "profile.json", profile)
    calibration, recommendation, validation = forecasts_checked(profile, engine, prompts, clock, scale)
    for name, record in (("calibration", calibration), ("recommendation", recommendation), ("validation", validation)):
        write_record(out / f"{name}.json", record)
    reported(out, profile, calibration, recommendation, validation)
    engine.close()
    print("passes of a dense model", flush=True)
    passes = measured_passes(scratch, scale, device, budget)
    if passes is not None:
        write_record(out / "profile-passes.json", passes)
    print(correct_on_device(device), flush=True)
    if passes is not None:
        pass_table(passes, scale.contexts)
    round_table(validation)
    key = profile.key
    print(f"{key.gpu or key.cpu}, {key.build}, {budget.spent:.0f} s; files in {out}")
    for what in budget.left_out:
        print(f"left out, the time was used up: {what}")
    return 1 if budget.left_out else 0


def reported(out: Path, profile, calibration, recommendation, validation) -> None:
    """report.html, where plotly and jinja2 are."""
    try:
        from specgauge.reports.page import write_report
    except ImportError as error:
        print(f"  no report.html: {error}")
        return
    write_report(out / "report.html", profile, calibration, recommendation, validation)


if __name__ == "__main__":
    sys.exit(main())
