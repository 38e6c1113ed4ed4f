"""Slow-downs that people reported in public, as symptoms: the figures of each thread, and by hand what they imply.

`thread` is where the figures are. `expected_ms` is worked out from them by hand (the sum stands beside it), of a round, or
of a token where the thread does not tell tokens per round. What a thread does not say is left out or said to be assumed.
"""

from dataclasses import dataclass

from specgauge.calibrate.symptoms import (
    Devices,
    Experts,
    Hardware,
    Neighbour,
    Parts,
    Pass,
    Symptoms,
    reported,
)
from specgauge.profiler.records import DeviceState


@dataclass(frozen=True)
class Report:
    """One thread. `change`: a word that the advice must hold."""

    name: str
    thread: str
    symptoms: Symptoms
    cause: str
    expected_ms: float | None
    change: str
    within: float = 0.05


RATIOS = ("the thread gives ratios alone: a plain step is taken as one second, bytes as parameters",)


def lengths(*rows: tuple[int, float, float | None]) -> tuple[Neighbour, ...]:
    """Neighbours by (draft tokens, tokens/s, tokens per round)."""
    return tuple(Neighbour("draft_tokens", *row) for row in rows)


REPORTS = (
    Report(
        "14B with a 0.5B draft in f16 on an A100, 16 drafted",
        "ggml-org/llama.cpp#10664",
        # 10.5 GB (Q5_K_M) and 0.99 GB (f16): sizes of the files that it links; 16 was the default draft length
        reported(67.73, 52.13, draft_tokens=16, hardware=Hardware(target_bytes=10.5e9, draft_bytes=0.99e9)),
        "draft-too-dear",
        4.4,  # 1/52.13 - 1/67.73 s a token; 16 steps of 0.99 GB at 711 GB/s would take 22 ms
        "lower quantization",
    ),
    Report(
        "the draft was left on the processor beside a 3090",
        "ggml-org/llama.cpp#10664 (comment)",
        reported(None, 45.0, draft_tokens=16, neighbours=(Neighbour("draft_gpu_layers", 99, 103.9),)),
        "draft-not-on-device",
        12.6,  # 1/45 - 1/103.9
        "-ngld 99",
    ),
    Report(
        "7B at 4 bits on a Mac mini: the draft hurts",
        "ggml-org/llama.cpp#10594",
        # 44 of 120 drafted tokens accepted in 24 rounds, 1.90 ms a draft step, 96 steps: as logged with f16
        reported(
            40.7,
            22.3,
            draft_tokens=5,
            accepted_share=44 / 120,
            parts=Parts(draft_step_seconds=1.90e-3, draft_passes=4),
        ),
        "verification-linear-in-width",
        63.6,  # 2.83/22.3 - 1/40.7 - 4 x 1.90 ms = 94.5 ms, less 5 x 0.25 plain steps (30.7)
        "no speculation (40.7",
    ),
    Report(
        "the same 7B in f16: the draft helps",
        "ggml-org/llama.cpp#10594 (f16)",
        reported(
            17.3,
            26.8,
            draft_tokens=5,
            accepted_share=44 / 120,
            parts=Parts(draft_step_seconds=1.90e-3, draft_passes=4),
        ),
        "no-cause",
        0.0,
        "nothing",
    ),
    Report(
        "90 % accepted and 20 ms in every round that nobody can name",
        "ggml-org/llama.cpp#25908",
        # 3.8 accepted; drafting and verification 12 ms by its own account, 2.11 ms a draft step (474 tokens/s alone)
        reported(
            1 / 3.1e-3,  # not told: a plain step takes no longer than the pass over 5 tokens
            165.4,
            draft_tokens=8,
            p_min=0.75,
            tokens_per_round=4.8,
            drafted_per_round=3.8 / 0.9,
            parts=Parts(draft_step_seconds=2.11e-3, verification_seconds=3.1e-3),
            neighbours=lengths((16, 170.0, 4.8), (64, 164.3, 4.8)),
        ),
        "fixed-overhead",
        17.0,  # 4.8/165.4 s = 29.0 ms, less 12; the thread says about 20
        "another build",
    ),
    Report(
        "27B on a 7900 XTX: one drafted token helps, two collapse",
        "ggml-org/llama.cpp#23549",
        reported(
            19.35,
            7.72,
            draft_tokens=2,
            accepted_share=0.75,
            drafter="mtp",
            neighbours=lengths((1, 20.78, 1.75), (3, 7.49, 3.25)),
        ),
        "spill",
        207.0,  # rounds 84.2 and 323.8 ms; the step before, from 51.7, was 32.5
        "less context",
    ),
    Report(
        "100 % accepted, 18 % gained on a 4070 Ti",
        "ggml-org/llama.cpp#27788",
        reported(50.6, 59.7, draft_tokens=3, accepted_share=1.0),  # 3 drafted tokens assumed: the engine's default
        "verification-linear-in-width",
        32.4,  # 4/59.7 - 1/50.6 = 47.2 ms, less 3 x 0.25 plain steps (14.8)
        "kernels batch better",
    ),
    Report(
        "27B on a 7900 XTX: 13 tokens/s with and without",
        "lmstudio-ai/lms#581",
        reported(
            13.0, 13.0, draft_tokens=3, drafter="mtp", hardware=Hardware(target_bytes=16.8e9, bandwidth=960e9)
        ),  # Q4_K_M's size and the card's data sheet
        "baseline-broken",
        41.9,  # 76.9 ms for 16.8 GB that take 35.0 at half of 960 GB/s: 28.6 tokens/s; others report 29 to 31
        "plain decoding",
    ),
    Report(
        "32B at 8 bits with a 1.5B draft on an M1 Ultra",
        "lmstudio-ai/mlx-engine#113",
        reported(
            15.10,
            11.01,
            draft_tokens=2,
            accepted_share=0.551,
            hardware=Hardware(target_bytes=34.8e9, draft_bytes=1.9e9, gpu=True),
        ),  # 2 drafted tokens: the engine's default
        "verification-linear-in-width",
        84.3,  # 2.10/11.01 - 1/15.10 = 124.7 ms, less 2 draft steps (7.2) and 2 x 0.25 plain steps (33.1)
        "no speculation (15.1",
    ),
    Report(
        "72B at 4 bits with a 0.5B draft on an M1 Ultra, a plan for a day",
        "lmstudio-ai/mlx-engine#113 (72B)",
        reported(
            12.18,
            8.74,
            draft_tokens=2,
            accepted_share=0.506,
            hardware=Hardware(target_bytes=40.9e9, draft_bytes=0.3e9, gpu=True),
        ),
        "verification-linear-in-width",
        105.8,  # 2.012/8.74 - 1/12.18 = 148.1 ms, less 1.2 and 41.1
        "no speculation (12.2",
    ),
    Report(
        "8B with a 3B draft on an M1 Pro",
        "lmstudio-ai/mlx-engine#103",
        reported(38.7, 29.29, draft_tokens=2, hardware=Hardware(target_bytes=4.5e9, draft_bytes=1.8e9)),
        "draft-too-dear",
        8.3,  # 1/29.29 - 1/38.7; two steps of 1.8 GB at 174 GB/s would take 20.7 ms
        "smaller draft",
    ),
    Report(
        "Gemma 4 12B on a GB10: a pass of four is four passes",
        "lablup/mlxcel#735, #739",
        reported(1 / 69e-3, 2.05 / 271e-3, draft_tokens=3, tokens_per_round=2.05, drafter="mtp"),
        "verification-linear-in-width",
        150.3,  # 271 - 69 = 202 ms, less 3 x 0.25 x 69
        "no speculation (14.5",
    ),
    Report(
        "the same model and acceptance on an M5 Max, in plain steps",
        "lablup/mlxcel#744",
        reported(1.0, 1.72, draft_tokens=3, tokens_per_round=2.05, drafter="mtp", notes=RATIOS),
        "no-cause",
        0.0,
        "nothing",
    ),
    Report(
        "n-grams on a 7B that decodes 70 tokens/s",
        "vllm-project/vllm#8439",
        reported(69.79, 61.79, draft_tokens=5, drafter="ngram"),
        "fixed-overhead",
        1.86,  # 1/61.79 - 1/69.79, at least
        "another build or engine",
    ),
    Report(
        "drafting across pipeline stages",
        "vllm-project/vllm#44697",
        # 25 ms of each round fixed, by its own account; 1.93 tokens at least, since 93 % of first tokens are accepted
        reported(
            61.2,
            43.7,
            draft_tokens=2,
            tokens_per_round=1.93,
            drafter="mtp",
            parts=Parts(overhead_seconds=25e-3),
        ),
        "fixed-overhead",
        25.0,
        "another build or engine",
    ),
    Report(
        "a net loss over a baseline that was never measured",
        "noonghunna/club-3090 BENCHMARKS",
        reported(37.0, 30.0, draft_tokens=3, drafter="mtp", baseline_measured=False),
        "no-paired-baseline",
        None,
        "run plain decoding",
    ),
    Report(
        "the recipe's four drafted tokens at eight streams",
        "eugr/spark-vllm-docker#343",
        # 210.0 and 303.6 tokens/s of all eight; tokens by its per-position rates
        reported(
            None,
            210.0 / 8,
            draft_tokens=4,
            drafter="mtp",
            streams=8,
            tokens_per_round=1 + 0.844 + 0.599 + 0.385 + 0.271,
            survival=(0.844, 0.599, 0.385, 0.271),
            neighbours=lengths((2, 303.6 / 8, 2.311)),
        ),
        "draft-length-too-deep",
        36.4,  # 3.099/26.25 = 118.1 ms; at 37.95 tokens/s they would take 81.7
        "draft_tokens 2",
    ),
    Report(
        "the default of three on a GB10",
        "ggml-org/llama.cpp#24508",
        reported(26.7, 23.5, draft_tokens=3, drafter="mtp", neighbours=lengths((2, 30.5, None))),
        "draft-length-too-deep",
        9.8,  # 1/23.5 - 1/30.5 (which also had p_min 0.6)
        "draft_tokens 2",
    ),
    Report(
        "target and draft exchanged",
        "ggml-org/llama.cpp#10455 (comment)",
        reported(50.0, 11.0, draft_tokens=16, hardware=Hardware(target_bytes=0.5e9, draft_bytes=7.0e9)),  # 14 times
        "swapped-roles",
        70.9,  # 1/11 - 1/50: one draft step alone would take 14 plain steps
        "exchange",
    ),
    Report(
        "the flag that gains 43 % at 16K loses 46 % at 32K",
        "sudoingX/qwen38-mtp#48",
        reported(
            45.1,
            45.1 * 0.54,
            draft_tokens=2,
            accepted_share=0.74,
            drafter="mtp",
            context=32_768,
            neighbours=(Neighbour("context", 16_384, 64.4, 2.48, 1 / 45.1),),
            devices=Devices(
                (DeviceState(power_watts=366.0, pcie_rx_bytes_per_second=0.1e9),),
                (DeviceState(power_watts=252.0, pcie_rx_bytes_per_second=11e9, memory_free_bytes=446 << 20),),
            ),
        ),
        "spill",
        63.3,  # 2.48/24.35 - 2.48/64.4
        "less context",
    ),
    Report(
        "nothing helps a 35B-A3B on a 3090, not even 100 % accepted",
        "thc1006/qwen3.8-speculative-decoding-rtx3090",
        reported(139.0, 86.0, draft_tokens=3, accepted_share=1.0, experts=Experts(256, 8)),
        "expert-traffic",
        20.3,  # (30.53/8 - 1) plain steps of 7.19 ms, if all that a step reads are experts
        "no speculation (139",
    ),
    Report(
        "NemotronH 30B-A3B: a pass of five",
        "waybarrios/vllm-mlx#763",
        reported(
            1 / 8.47e-3,
            0.85 / 8.47e-3,
            draft_tokens=4,
            drafter="dflash",
            experts=Experts(128, 6),
            passes=tuple(Pass(w, s / 1e3) for w, s in ((1, 8.47), (2, 13.49), (3, 15.64), (5, 20.67), (8, 28.13))),
        ),
        "expert-traffic",
        1.49,  # 8.47/0.85 - 8.47 a token, at least
        "fewest experts",
    ),
    Report(
        "397B-A17B with a 9B draft, in plain steps",
        "ml-explore/mlx-lm#1132",
        reported(1.0, 0.65, draft_tokens=3, hardware=Hardware(target_bytes=17.0, draft_bytes=9.0), notes=RATIOS),
        "draft-too-dear",
        538.0,  # 1/0.65 - 1 of a plain step
        "smaller draft",
    ),
    Report(
        "recurrent state copied to the host",
        "ggml-org/llama.cpp#28118, #28120",
        # rounds of about 825 ms, 600 of them copies; 6 tokens/s are 4.95 tokens a round
        reported(
            32.0,
            6.0,
            draft_tokens=4,
            tokens_per_round=4.95,
            drafter="mtp",
            parts=Parts(rollback_seconds=0.600),
        ),
        "rollback-copies",
        600.0,
        "native",
    ),
    Report(
        "an MTP head on NVFP4 kernels: three columns for two steps",
        "kekzl/imp#1466",
        # 11.39 ms plain; 24.44 ms and 2.153 tokens a round with two drafted tokens, 19.43 and 1.715 with one
        reported(
            1 / 11.39e-3,
            2.153 / 24.44e-3,
            draft_tokens=2,
            tokens_per_round=2.153,
            drafter="mtp",
            parts=Parts(verification_seconds=24.44e-3),
            neighbours=lengths((1, 1.715 / 19.43e-3, 1.715)),
        ),
        "verification-linear-in-width",
        7.36,  # 13.05 ms more than a plain step, less 2 x 0.25 of one
        "kernels batch better",
    ),
    Report(
        "four streams on a R9700",
        "Tanguille/cluster#3261",
        reported(
            14.5,
            10.9,
            draft_tokens=2,
            drafter="mtp",
            streams=4,
            neighbours=(Neighbour("streams", 1, 39.0, None, 1 / 24.3),),
        ),
        "too-many-streams",
        22.8,  # 1/10.9 - 1/14.5
        "1 stream",
    ),
    Report(
        "four drafted tokens at 128K of filled context",
        "r/LocalLLaMA bench, sudoingX/qwen38-mtp#7",
        reported(
            None,
            23.5,
            draft_tokens=4,
            drafter="mtp",
            context=131_072,
            neighbours=(Neighbour("context", 0, 89.0), *lengths((1, 31.2, None))),
        ),
        "context-growth",
        31.3,  # 1/23.5 - 1/89
        "draft token",
    ),
    Report(
        "a 5090 held at 400 W",
        "sudoingX/qwen38-mtp#47",
        # 133.8 tokens/s at 400 W are 18.1 % less than at 600 W, plain 71.2 are 4.8 % less
        reported(
            71.2,
            133.8,
            draft_tokens=3,
            tokens_per_round=3.157,
            drafter="mtp",
            neighbours=(Neighbour("power_limit_watts", 600, 133.8 / 0.819, 3.157, 0.952 / 71.2),),
        ),
        "throttling",
        4.27,  # 18.1 % of 23.6 ms
        "600 W",
    ),
    Report(
        "filler in the benchmark, code in the work",
        "jundot/omlx#2343",
        reported(None, 28.1, draft_tokens=3, drafter="mtp", neighbours=(Neighbour("workload", "filler", 53.4),)),
        "prompts-not-yours",
        16.9,  # 1/28.1 - 1/53.4
        "your own prompts",
    ),
    Report(
        "fewer tokens accepted since a later build",
        "ggml-org/llama.cpp#26750",
        # 200 tokens in 79 rounds, and in 68 with the build before
        reported(
            None,
            57.67,
            draft_tokens=3,
            tokens_per_round=200 / 79,
            drafter="mtp",
            neighbours=(Neighbour("build", "b10261", 69.23, 200 / 68),),
        ),
        "engine-setting",
        7.33,  # 2.532/57.67 - 2.532/69.23
        "b10261",
    ),
)
