"""Which format a file has, by its content; and the evidence in it."""

import re
from collections.abc import Sequence
from pathlib import Path

from . import batched_bench, llama_bench, llama_server, rows, server_log, vllm_metrics
from .base import Given, Imported
from .source import Source, json_objects, read_source

FORMATS = (
    "the CSV of docs/design.md, llama-bench (json, jsonl, csv), llama-server /completion timings or log, vLLM /metrics, "
    "llama-batched-bench jsonl"
)
JSON_BEGINS = re.compile(r"\s*(?:\{|\[\s*[\[{\]])")


def read_files(paths: Sequence[Path], given: Given) -> tuple[Imported, ...]:
    """The evidence of each file, in their order; vLLM's snapshots by twos, last. Raises InputError."""
    sources = [read_source(path) for path in paths]
    metrics = [source for source in sources if _is_metrics(source)]
    others = [_read(source, given) for source in sources if source not in metrics]
    return (*others, *(vllm_metrics.read_metrics(metrics, given) if metrics else []))


def _is_metrics(source: Source) -> bool:
    return not JSON_BEGINS.match(source.text) and vllm_metrics.is_metrics(source.text)


def _read(source: Source, given: Given) -> Imported:
    if JSON_BEGINS.match(source.text):
        return _read_json(source, given)
    header = source.text.lstrip("\r\n").split("\n", 1)[0]
    names = {cell.strip().strip('"') for cell in header.split(",")[: rows.MOST_COLUMNS + 1]}
    if names >= llama_bench.NAMING or len(names & {*llama_bench.NAMING, "avg_ns", "build_commit", "n_ubatch"}) > 2:
        return llama_bench.read_llama_bench(source, rows.read_csv(source), given)
    if rows.is_rows(header):
        return rows.read_rows(source, given)
    if server_log.is_server_log(source.text):
        return server_log.read_server_log(source, given)
    source.refuse(f"of no known format; known are {FORMATS}")


def _read_json(source: Source, given: Given) -> Imported:
    objects = json_objects(source)
    names = set(objects[0].values)
    if names & {"n_prompt", "n_gen"}:
        return llama_bench.read_llama_bench(source, objects, given)
    if len(names & batched_bench.NAMING) > 2:
        return batched_bench.read_batched_bench(source, objects, given)
    if names & llama_server.NAMING:
        return llama_server.read_timings(source, objects, given)
    if "kind" in names and "schema_version" in names:
        source.refuse("is a file of specgauge; give it to the command that reads it, such as predict --profile")
    source.refuse(f"JSON of no known format; known are {FORMATS}")
