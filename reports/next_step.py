"""What to do next, in view of what lies in the output folder: what `specgauge` alone prints."""

from pathlib import Path

FIRST = (
    ("try it on the embedded demo, 15 to 25 minutes", "specgauge run"),
    ("your own models", "specgauge run TARGET.gguf --draft DRAFT.gguf --llama-server PATH"),
    ("before anything loads: do they fit, do they match", "specgauge check TARGET.gguf --draft DRAFT.gguf"),
    ("from measurements that you have", "specgauge import FILE... && specgauge recommend"),
)


def next_steps(out: Path, has: frozenset[str]) -> list[str]:
    """Lines to print; `has` names the files of the five that lie in `out`."""
    if "profile.json" not in has:
        head = f"specgauge forecasts speculative decoding. {out} is empty so far:"
        steps = FIRST
    else:
        head, steps = f"In {out}:", _going_on(has)
    width = max(len(what) for what, _ in steps)
    shown = [f"  {what:{width}}  {command}" for what, command in steps]
    # Two lines a step where one would be wider than a terminal.
    if max(map(len, shown)) > 80:
        shown = [line for what, command in steps for line in (f"  {what}:", f"      {command}")]
    return [head, *shown, "  All commands: specgauge --help"]


def _going_on(has: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """The first step that is missing, and what always can be asked of a profile."""
    if "recommendation.json" not in has:
        first = ("a profile; what to set", "specgauge recommend")
    elif "validation.json" not in has:
        first = ("a recommendation; check it by runs", "specgauge validate")
    elif "report.html" not in has:
        first = ("a checked recommendation; see it", "specgauge report")
    else:
        first = ("all of it is there; the verdict again", "specgauge recommend")
    return (
        first,
        ("any other setting", "specgauge predict --draft-tokens 0..8"),
        ("why drafting is not faster", "specgauge diagnose"),
        ("once more, anew", "specgauge run"),
    )
