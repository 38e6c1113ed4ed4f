"""What-if records and maps of the sample records, from the same closed model."""

import numpy as np

from specgauge.calibrate.checks.records import LargestContext, RegionCell
from specgauge.calibrate.map_records import MemoryMap, SpeedCell, SpeedMap
from specgauge.calibrate.records import SettingForecast
from specgauge.calibrate.what_if import cost_of
from specgauge.calibrate.what_if_records import KernelAdvice, PassSeconds, RoundPrices, WhatIfRecord, WorkloadWhatIf
from specgauge.model.what_if import WhatIf
from specgauge.profiler.records import Setting

CONTEXTS = (128.0, 1024.0)
REST = 256.0
FREE_BYTES = 8 * 2**30


def what_ifs(
    forecasts: tuple[SettingForecast, ...], rates: dict[tuple[str, str], float], seconds
) -> tuple[WhatIfRecord, ...]:
    """One for each drafter: hazards of `rates` by (drafter, workload), passes of `seconds(quant, width, context)`."""
    groups: dict[tuple[str, str, str], list[SettingForecast]] = {}
    for forecast in forecasts:
        if forecast.setting.draft_tokens:
            key = (forecast.setting.target, forecast.setting.drafter, forecast.setting.draft)
            groups.setdefault(key, []).append(forecast)
    return tuple(_record(group, rates, seconds) for group in groups.values())


def _record(forecasts: list[SettingForecast], rates: dict[tuple[str, str], float], seconds) -> WhatIfRecord:
    longest = max((f.setting for f in forecasts), key=lambda setting: setting.draft_tokens)
    lengths = tuple(sorted({f.setting.draft_tokens for f in forecasts}))
    quant, by_model = longest.target_quant, longest.drafter == "model"
    widths = tuple(range(1, longest.draft_tokens + 2))
    target = [[seconds(quant, width, context) for context in CONTEXTS] for width in widths]
    again = [[(0.8 if w > 1 else 1.0) * seconds("Q4_0", w, c) for c in CONTEXTS] for w in widths]
    prices = RoundPrices(
        recipe=("draft", "verification", "draft_batch", "overhead") if by_model else ("verification", "overhead"),
        draft_tokens=lengths,
        target=PassSeconds(contexts=CONTEXTS, widths=widths, seconds=tuple(map(tuple, target))),
        draft=PassSeconds(contexts=CONTEXTS, widths=widths, seconds=tuple(map(tuple, again))) if by_model else None,
        overhead_seconds=0.0011 if by_model else -0.0006,
        overhead_seconds_per_token=0.0002 if by_model else 0.0001,
        correction=(1.0,) * len(lengths),
    )
    names = list(dict.fromkeys(f.workload for f in forecasts))
    workloads = tuple(
        _workload(prices, [f for f in forecasts if f.workload == name], rates[longest.drafter, process])
        for name, process in zip(names, ("ordinary", "copying"))
    )
    advice = KernelAdvice(
        workload=names[0],
        draft_tokens=8,
        over_line=-0.2,
        over_before=-0.1,
        take=8,
        never=(6, 7),
        text="take 8 draft tokens",
    )
    return WhatIfRecord(
        setting=longest,
        prices=prices,
        workloads=workloads,
        trusted_context=1920.0,
        known_contexts=CONTEXTS,
        kernels=(advice,) if by_model else (),
    )


def _workload(prices: RoundPrices, forecasts: list[SettingForecast], rate: float) -> WorkloadWhatIf:
    by_length = {f.setting.draft_tokens: f for f in forecasts}
    speeds = [forecasts[0].baseline_tokens_per_second]
    speeds += [by_length[n].tokens_per_second.value for n in prices.draft_tokens]
    lengths, hazard = np.array([0, *prices.draft_tokens]), np.full(prices.draft_tokens[-1], rate)
    offered = np.array([0.0, *[1.0] * len(prices.draft_tokens)])
    bare = WhatIf(cost_of(prices), lengths, hazard, offered, 1.0, np.ones(lengths.size))
    held = bare.held_to(np.array(speeds), REST)
    return WorkloadWhatIf(
        workload=forecasts[0].workload,
        context=REST,
        hazard=tuple(map(float, hazard)),
        offered=tuple(map(float, offered)),
        reply_factor=1.0,
        anchor=tuple(map(float, held.anchor)),
        scale=held.scale,
        tokens_per_second=tuple(map(float, speeds)),
        doubtful=(False,) * lengths.size,
    )


def speed_maps(records: tuple[WhatIfRecord, ...]) -> tuple[SpeedMap, ...]:
    """A gain that falls with streams, and a doubled context that nobody measured."""
    return tuple(
        SpeedMap(
            setting=record.setting,
            workload=workload.workload,
            cells=tuple(_cell(workload, context, n) for n in (1, 2, 4, 8) for context in (256.0, 1024.0, 4096.0)),
            unknown="passes over at most 17 tokens were timed",
        )
        for record in records
        for workload in record.workloads
    )


def _cell(workload: WorkloadWhatIf, context: float, streams: int) -> SpeedCell:
    speed_up = max(workload.tokens_per_second) / workload.tokens_per_second[0] / streams**0.8
    return SpeedCell(
        context=context,
        streams=streams,
        draft_tokens=max(1, 6 // streams),
        tokens_per_second=speed_up * workload.tokens_per_second[0],
        plain_tokens_per_second=workload.tokens_per_second[0],
        speed_up=speed_up,
        speed_up_low=0.95 * speed_up,
        speed_up_high=1.05 * speed_up,
        provenance="prior" if context > 2000 else "calibrated",
    )


def memory_maps(settings: tuple[Setting, ...]) -> tuple[MemoryMap, ...]:
    """Weights of 5 GiB, and a cache that fills the rest."""
    pairs = dict.fromkeys((s.target, s.drafter, s.draft) for s in settings if s.draft_tokens)
    return tuple(
        MemoryMap(
            target=target,
            drafter=drafter,
            draft=draft,
            room="8,192 MiB, all of Card, with nothing else on it",
            free_bytes=float(FREE_BYTES),
            cells=tuple(_region(c, g, n) for c in (2048, 8192, 32_768) for g in (0, 4, 8) for n in (1, 4)),
            largest_contexts=tuple(
                LargestContext(streams=n, draft_tokens=g, context=24_000 // n) for n in (1, 4) for g in (0, 4, 8)
            ),
        )
        for target, drafter, draft in pairs
    )


def _region(context: int, draft_tokens: int, streams: int) -> RegionCell:
    total = 5 * 2**30 + streams * (context + 40 * draft_tokens) * 98_304.0
    spare = FREE_BYTES - total
    verdict = "does_not_fit" if spare < 0 else "tight" if spare < 512 * 2**20 else "fits"
    return RegionCell(streams=streams, draft_tokens=draft_tokens, context=context, total_bytes=total, verdict=verdict)
