"""Find a result by name: a result of llamaherd, or of another benchmark tool."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Any

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.results.result import (
    Cell,
    Condition,
    Engine,
    Gpu,
    Host,
    ModelFile,
    Provenance,
    Result,
    Run,
    Server,
    Source,
    SourceKind,
    is_timestamp,
)
from llamaherd.measure.results.store import (
    MOST_RESULT_BYTES,
    fold_journal,
    has_too_many_values,
    load_json,
    parse_result,
    read_result,
    result_files,
    with_id,
)
from llamaherd.text.numbers import utc_stamp
from llamaherd.text.textfile import UnreadableError, read_bytes

_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|[+-]00:?00)?")


@dataclass(frozen=True)
class ImportTarget:
    """Where imported results belong, and their time if they do not contain one."""

    rig: str
    instance: str
    at: str


def positive_number(value: object) -> float | None:
    """Return a finite number above 0, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e15 else None


def whole_number(value: object) -> int:
    """Return a whole number from 0 on; 0 for anything else."""
    found = positive_number(value)
    return int(found) if found is not None and found == int(found) else 0


def nonempty_text(value: object) -> str | None:
    """Return a stripped text, or None for an empty one or anything else."""
    return value.strip() if isinstance(value, str) and value.strip() else None


def positive_numbers(value: object) -> list[float]:
    """Return the finite numbers above 0 of a list."""
    return [found for each in value if (found := positive_number(each))] if isinstance(value, list) else []


def utc_time(value: object, otherwise: str) -> str:
    """Return a time in our form if it is UTC or has no zone; else the other one."""
    found = _ISO.fullmatch(value) if isinstance(value, str) else None
    stamp = f"{found[1]}T{found[2]}Z" if found else ""
    return stamp if is_timestamp(stamp) else otherwise


def imported_result(
    whose: ImportTarget,
    kind: SourceKind,
    cells: Iterable[tuple[Condition, Iterable[Run]]],
    notes: Iterable[str],
    *,
    stack: str | None = None,
    at: object = None,
    provenance: Provenance | None = None,
) -> Result:
    """Return an imported result. Runs under one condition belong to one cell, in their order."""
    runs: dict[Condition, list[Run]] = {}
    for condition, each in cells:
        runs.setdefault(condition, []).extend(each)
    began = utc_time(at, whose.at)
    return with_id(
        Result(
            llamaherd=__version__,
            rig=whose.rig,
            instance=whose.instance,
            stack=stack,
            began=began,
            ended=began,
            source=Source(kind=kind, notes=tuple(notes)),
            provenance=provenance or Provenance(),
            cells=tuple(Cell(condition=condition, runs=tuple(each)) for condition, each in runs.items()),
        )
    )


JsonObject = dict[str, Any]


LLAMA_BENCH_NOTES = (
    "llama-bench feeds random tokens and samples none: no server has just this speed, and mixtures of experts route "
    "random tokens otherwise",
    "driver, power limit, clocks and hashes of the model are unknown",
)
_BENCH_SETTINGS = (
    *("n_batch", "n_ubatch", "n_threads", "cpu_mask", "type_k", "type_v", "n_gpu_layers", "n_cpu_moe", "split_mode"),
    *("main_gpu", "no_kv_offload", "flash_attn", "devices", "tensor_split", "tensor_buft_overrides", "load_mode"),
    *("lazy_mode", "use_mmap", "use_direct_io", "embeddings", "no_op_offload", "no_host", "repack", "fit_target"),
    *("fit_min_ctx", "fused_moe", "ger", "rtr", "mqkv", "muge", "mla_attn", "attn_max_batch"),
)
"""The settings in a row. A file may hold rows of many settings: each makes a result."""


def is_llama_bench(rows: Sequence[JsonObject]) -> bool:
    """Check that rows are of llama-bench."""
    return bool(rows) and all({"n_prompt", "n_gen", "model_filename"} <= row.keys() for row in rows)


def parse_llama_bench(rows: Sequence[JsonObject], whose: ImportTarget) -> tuple[Result, ...]:
    """Return a result for each model and setting."""
    groups: dict[tuple[str, ...], list[JsonObject]] = {}
    for row in rows:
        setting = [row.get(key) for key in ("model_filename", "build_commit", "gpu_info", *_BENCH_SETTINGS)]
        groups.setdefault(tuple(map(str, setting)), []).append(row)
    return tuple(_bench_result(group, whose) for group in groups.values())


def _bench_result(rows: list[JsonObject], whose: ImportTarget) -> Result:
    combined = sum(1 for row in rows if whole_number(row.get("n_prompt")) and whole_number(row.get("n_gen")))
    left_out = [f"{combined} rows of prompt and generation in one time are left out"] if combined else []
    return imported_result(
        whose,
        "llama-bench",
        [(_bench_condition(row), _bench_runs(row)) for row in rows if _is_of_one(row)],
        [*LLAMA_BENCH_NOTES, *left_out],
        stack=nonempty_text(rows[0].get("model_type")),
        at=rows[0].get("test_time"),
        provenance=_bench_provenance(rows[0]),
    )


def _is_of_one(row: JsonObject) -> bool:
    return bool(whole_number(row.get("n_prompt"))) != bool(whole_number(row.get("n_gen")))


def _bench_condition(row: JsonObject) -> Condition:
    prompt, generated = whole_number(row.get("n_prompt")), whole_number(row.get("n_gen"))
    depth = whole_number(row.get("n_depth"))
    return Condition(kind="random", depth=depth, prompt=prompt or None, generated=generated, cache="cold")


def _bench_runs(row: JsonObject) -> list[Run]:
    """Return a run for each sample; if an older version has no samples, one with the mean."""
    prompt, generated = whole_number(row.get("n_prompt")), whole_number(row.get("n_gen"))
    times = positive_numbers(row.get("samples_ns")) or positive_numbers([row.get("avg_ns")])
    if prompt:
        return [Run(prompt_n=prompt, cache_n=0, prompt_ms=each / 1e6) for each in times]
    # Each of its tokens is a step that was timed: there is no first one that comes free.
    return [Run(predicted_n=generated, predicted_per_second=generated * 1e9 / each) for each in times]


def _bench_provenance(row: JsonObject) -> Provenance:
    name = PurePath(str(row.get("model_filename") or "unknown")).name
    settings = tuple(f"{key}={row[key]}" for key in _BENCH_SETTINGS if key in row)
    gpus = tuple(
        Gpu(name=each.strip()) for each in (nonempty_text(row.get("gpu_info")) or "").split(",") if each.strip()
    )
    build = whole_number(row.get("build_number"))
    return Provenance(
        host=Host(cpu=nonempty_text(row.get("cpu_info"))),
        gpus=gpus,
        engine=Engine(version=f"b{build}" if build else None, commit=nonempty_text(row.get("build_commit"))),
        model=nonempty_text(row.get("model_type")),
        files=(ModelFile(name=name, size=whole_number(row.get("model_size")) or None),),
        server=Server(arguments=settings),
    )


SWEEP_BENCH_NOTES = (
    "llama-sweep-bench feeds random tokens and samples none: no server has just this speed",
    "each depth was measured once; model, build, machine and driver are unknown",
)
_SWEEP_SETTINGS = ("n_kv_max", "n_batch", "n_ubatch", "flash_attn", "n_gpu_layers", "n_threads", "n_threads_batch")


def is_sweep_bench(rows: Sequence[JsonObject]) -> bool:
    """Check that rows are of llama-sweep-bench; llama-batched-bench adds `pl`, the number of prompts at once."""
    return bool(rows) and all({"pp", "tg", "n_kv", "t_pp", "t_tg"} <= row.keys() and "pl" not in row for row in rows)


def parse_sweep_bench(rows: Sequence[JsonObject], whose: ImportTarget) -> tuple[Result, ...]:
    """Return one result, with a cell for each depth."""
    settings = tuple(f"{key}={rows[0][key]}" for key in _SWEEP_SETTINGS if key in rows[0])
    cells = [cell for row in rows for cell in _sweep_cells(row)]
    provenance = Provenance(server=Server(arguments=settings, context=whole_number(rows[0].get("n_kv_max")) or None))
    return (imported_result(whose, "sweep-bench", cells, SWEEP_BENCH_NOTES, provenance=provenance),)


def _sweep_cells(row: JsonObject) -> list[tuple[Condition, list[Run]]]:
    """Return generation and prompt at one depth: two cells, as neither was measured after the other's tokens."""
    depth, prompt, generated = whole_number(row["n_kv"]), whole_number(row["pp"]), whole_number(row["tg"])
    prompt_s, generated_s = positive_number(row["t_pp"]), positive_number(row["t_tg"])
    found = []
    if prompt and prompt_s:
        run = Run(prompt_n=prompt, prompt_ms=prompt_s * 1000)
        found.append((Condition(kind="random", depth=depth, prompt=prompt), [run]))
    if generated and generated_s:
        run = Run(predicted_n=generated, predicted_per_second=generated / generated_s)
        found.append((Condition(kind="random", depth=depth, generated=generated), [run]))
    return found


LLAMA_BENCHY_NOTES = (
    "llama-benchy takes its text from a book, and the tokens of a prompt from the requested number",
    "times are a client's; a latency that it has measured beforehand is subtracted from its prefill",
    "engine, build, machine, driver and hashes of the model are unknown",
)


def is_llama_benchy(value: object) -> bool:
    """Check that a document is of llama-benchy."""
    return isinstance(value, dict) and {"benchmarks", "latency_mode", "prefix_caching_enabled"} <= value.keys()


def parse_llama_benchy(value: JsonObject, whose: ImportTarget) -> tuple[Result, ...]:
    """Return one result, with a cell for each of its benchmarks."""
    benchmarks = value["benchmarks"] if isinstance(value["benchmarks"], list) else []
    model = nonempty_text(value.get("model"))
    result = imported_result(
        whose,
        "llama-benchy",
        [_benchy_cell(each, value["prefix_caching_enabled"] is True) for each in benchmarks if isinstance(each, dict)],
        LLAMA_BENCHY_NOTES,
        stack=model,
        at=value.get("timestamp"),
        provenance=Provenance(model=model),
    )
    return (result,)


def _benchy_cell(each: JsonObject, caching: bool) -> tuple[Condition, list[Run]]:
    """Return the cell of a benchmark.

    With prefix caching, its context has a phase of its own, and is cached in the next.
    """
    depth, prompt = whole_number(each.get("context_size")), whole_number(each.get("prompt_size"))
    alone = each.get("is_context_prefill_phase") is True
    many = max(1, whole_number(each.get("concurrency")))
    condition = Condition(
        kind="unknown",
        depth=0 if alone else depth,
        prompt=(depth if alone else prompt) or None,
        generated=whole_number(each.get("response_size")),
        concurrency=many,
        cache="warm" if caching and depth and not alone else "cold",
    )
    # Of several requests at once, the speed of each; of one, there is no other.
    of_each = "_req" if many > 1 else ""
    samples = [
        _benchy_values(each, f"pp{of_each}_throughput"),
        _benchy_values(each, f"tg{of_each}_throughput"),
        _benchy_values(each, "e2e_ttft"),
    ]
    return condition, [
        Run(clock="client", prompt_per_second=prefill, predicted_per_second=decode, first_token_ms=first)
        for prefill, decode, first in zip_longest(*samples)
    ]


def _benchy_values(each: JsonObject, key: str) -> list[float]:
    """Return the samples of a metric; its mean if there are none."""
    metric = each.get(key)
    if not isinstance(metric, dict):
        return []
    return positive_numbers(metric.get("values")) or [found for found in [positive_number(metric.get("mean"))] if found]


TABLE_NOTES = ("a published table: it does not contain model, build, machine and driver",)
MOST_ROWS, _LONGEST = 2_000, 2_000
"""Rows of a table and letters of a line: longer ones are not written by hand."""

_RATE = r"(?:t/s|tok/s|tokens/s|tps)"
_COLUMNS = {
    "context": r"context|ctx|depth|n_kv",
    "prefill": rf"(?:prefill|prompt|pp)\s*\(?{_RATE}\)?",
    "per_kwh": r"(?:decode\s*\(?)?tokens/kwh\)?",
    "decode": rf"(?:decode|generation|tg)\s*\(?{_RATE}\)?|{_RATE}(?:\s*avg)?",
    "ttft": r"ttft\s*\(?ms\)?",
    "watts": r"power\s*\(?w\)?|watts",
    "run": r"run|#",
    "draft_n": r"draft_n|drafted",
    "accepted": r"accepted",
    "share": r"accept\s*%|acceptance",
    "stack": r"stack|model|engine",
}
"""The meaning of headings, in small letters. Others are ignored."""

_HEADING = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _COLUMNS.items()), re.IGNORECASE)
_EACH = re.compile(r"(\d[\d,]{1,8}) tokens each", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[+-]?\d+(?:\.\d+)?", re.ASCII)
_KILO = {"": 1, "k": 1024}


@dataclass(frozen=True)
class Table:
    """Rows by the meaning of their columns; `tokens` of each response, if the text above contains it."""

    rows: tuple[dict[str, str], ...]
    tokens: int | None


def parse_tables(document: str, whose: ImportTarget) -> tuple[Result, ...]:
    """Return a result for each table of speeds in a text, and for each stack of a table with several."""
    return tuple(result for table in _tables(document) for result in _table_results(table, whose))


def _tables(document: str) -> Iterator[Table]:
    tokens: int | None = None
    head: list[str] = []
    rows: list[dict[str, str]] = []
    for line in [*(each for each in document.splitlines() if len(each) < _LONGEST), ""]:
        cells = _table_cells(line, head)
        if rows and (not cells or len(cells) != len(head) or len(rows) >= MOST_ROWS):
            yield Table(tuple(rows), tokens)
            head, rows, tokens = [], [], None
        if head and _is_rule(line):
            continue
        if head and len(cells) == len(head):
            rows.append({name: cell for name, cell in zip(head, cells, strict=True) if name})
        elif found := _headings(line):
            head = found
        elif each := _EACH.search(line):
            tokens = int(each[1].replace(",", ""))
        elif not rows:
            head = []


def _is_rule(line: str) -> bool:
    return bool(re.fullmatch(r"[\s|:+-]*-[\s|:+-]*", line))


def _headings(line: str) -> list[str]:
    """Return the meaning of the columns below this line; nothing if it heads no table of speeds."""
    if "|" in line or "\t" in line:
        names = [_meaning(cell) for cell in _split(line)]
    else:
        # Between blanks only known headings can be told apart, and there must be no other.
        found = list(_HEADING.finditer(line))
        names = [each.lastgroup or "" for each in found]
        if re.sub(r"\s", "", _HEADING.sub("", line)):
            return []
    known = [name for name in names if name]
    return names if "decode" in known and len(known) > 1 and len(set(known)) == len(known) else []


def _meaning(cell: str) -> str:
    found = _HEADING.fullmatch(cell)
    return found.lastgroup or "" if found else ""


def _split(line: str) -> list[str]:
    cells = line.strip().strip("|").split("|") if "|" in line else line.strip().split("\t")
    return [cell.strip() for cell in cells]


def _table_cells(line: str, head: Sequence[str]) -> list[str]:
    if not head or "|" in line or "\t" in line:
        return _split(line) if line.strip() else []
    return line.split()


def _table_results(table: Table, whose: ImportTarget) -> Iterator[Result]:
    if not any(_table_value(row, "decode") for row in table.rows):
        return
    if "stack" in table.rows[0]:
        for row in table.rows:
            cells = [(_table_condition(row, table), [_table_run(row, table)])] if _table_value(row, "decode") else []
            yield imported_result(whose, "table", cells, TABLE_NOTES, stack=row["stack"] or None)
        return
    cells = [
        (_table_condition(row, table), [_table_run(row, table)]) for row in table.rows if _table_value(row, "decode")
    ]
    yield imported_result(whose, "table", cells, [*TABLE_NOTES, *_of_energy(table)])


def _table_condition(row: dict[str, str], table: Table) -> Condition:
    """Return the condition of a row. If a prompt was read, it filled the context; else that is unknown."""
    context = int(_table_value(row, "context") or 0) or None
    prompt = context if _table_value(row, "prefill") else None
    return Condition(kind="unknown", prompt=prompt, generated=table.tokens or 0, context=None if prompt else context)


def _table_run(row: dict[str, str], table: Table) -> Run:
    drafted, accepted = _table_value(row, "draft_n"), _table_value(row, "accepted")
    condition = _table_condition(row, table)
    return Run(
        prompt_n=condition.prompt,
        prompt_per_second=_table_value(row, "prefill"),
        predicted_n=table.tokens,
        predicted_per_second=_table_value(row, "decode"),
        draft_n=int(drafted) if drafted else None,
        draft_n_accepted=int(accepted) if accepted else None,
        first_token_ms=_table_value(row, "ttft"),
        watts=_table_value(row, "watts"),
    )


def _table_value(row: dict[str, str], name: str) -> float | None:
    """Return the number in a cell if it is above 0; `4K` is 4,096."""
    written = row.get(name, "").strip()
    found = _NUMBER.match(written)
    if not found:
        return None
    value = float(found[0].replace(",", "")) * _KILO.get(written[found.end() :].strip().lower()[:1], 1)
    return value if 0 < value < 1e15 else None


def _of_energy(table: Table) -> Iterator[str]:
    """Yield how tokens for a kilowatt-hour were computed, if the table's own figures show it."""
    figures = [
        (_table_value(row, "per_kwh"), _table_value(row, "decode"), _table_value(row, "watts")) for row in table.rows
    ]
    known = [(each, rate * 3.6e6 / watts) for each, rate, watts in figures if each and rate and watts]
    if not known:
        return
    if all(abs(each / worked_out - 1) < 0.01 for each, worked_out in known):
        yield "its tokens for a kilowatt-hour are decode divided by power, without prefill"
    else:
        yield "its tokens for a kilowatt-hour are not decode divided by power"


_HELP = (
    "llama-bench `-o json`, llama-sweep-bench `--output-format jsonl`, llama-benchy `--format json` and tables with a "
    "column of t/s can be read"
)


def parse_foreign_results(data: bytes, name: str, whose: ImportTarget) -> tuple[Result, ...]:
    """Parse the results of other tools in a file of this name. Raise UserError."""
    if len(data) > MOST_RESULT_BYTES:
        raise UserError(f"{name} is larger than {MOST_RESULT_BYTES >> 20} MiB", _HELP)
    try:
        document = data.decode()
    except UnicodeDecodeError:
        raise UserError(f"{name} is no text", _HELP) from None
    rows = _json_rows(document, name)
    if rows is None:
        found = parse_tables(document, whose)
    elif len(rows) == 1 and is_llama_benchy(rows[0]):
        found = parse_llama_benchy(rows[0], whose)
    elif is_llama_bench(rows):
        found = parse_llama_bench(rows, whose)
    elif is_sweep_bench(rows):
        found = parse_sweep_bench(rows, whose)
    else:
        found = ()
    found = tuple(result for result in found if any(cell.runs for cell in result.cells))
    if not found:
        raise UserError(f"{name} contains no measurement in a supported format", _HELP)
    return found


def _json_rows(document: str, name: str) -> list[JsonObject] | None:
    """Parse the objects of a JSON document or of lines of JSON; None if it is something else."""
    start = document.lstrip()[:1]
    if start not in ("{", "["):
        return None
    try:
        value = json.loads(document)
    except RecursionError:
        raise UserError(f"{name} is nested too deeply", _HELP) from None
    except ValueError:
        value = [load_json(line.encode(), name) for line in document.splitlines() if line.strip()[:1] == "{"]
    if has_too_many_values(value):
        raise UserError(f"{name} holds too many values", _HELP)
    rows = value if isinstance(value, list) else [value]
    return rows if all(isinstance(row, dict) for row in rows) else []


_COUNTED = re.compile(r"(.+):([1-9]\d{0,4})")
_INSTANCE = re.compile(r"([a-z0-9][a-z0-9._-]{0,39})/([a-z0-9][a-z0-9._-]{0,39})")
_OURS = re.compile(rb'\s*\{\s*"(?:format|begin)"')
_MOST_NAMED = 12
_LATEST = 2**37
"""A time in the year 6325: a file may have a later one."""


def named_result(word: str, results: Path) -> Result:
    """Return the result of a word. Raise UserError.

    `FILE` is the result in a file, and `FILE:2` the second one. `RIG/INSTANCE` is the newest result of an instance, and
    `RIG/INSTANCE:2` the one before it.
    """
    counted = None if Path(word).exists() else _COUNTED.fullmatch(word)
    name, number = (counted[1], int(counted[2])) if counted else (word, None)
    if Path(name).exists():
        return _select_result(read_results(Path(name)), name, number)
    instance = _INSTANCE.fullmatch(name)
    if not instance:
        raise UserError(f"there is no file {name}", "name a file with a result, or RIG/INSTANCE")
    files = result_files(results, instance[1], instance[2])
    if not files:
        raise UserError(f"there is no result of {name} in {results}", "name a file with a result instead")
    if (number or 1) > len(files):
        raise UserError(f"there are {len(files)} results of {name}", f"the oldest one is `{name}:{len(files)}`")
    return read_result(files[(number or 1) - 1])


def read_results(path: Path) -> tuple[Result, ...]:
    """Read the results in a file, of llamaherd or of another tool. Raise UserError."""
    try:
        data = read_bytes(path, MOST_RESULT_BYTES)
        changed = datetime.fromtimestamp(min(max(path.stat().st_mtime, 0), _LATEST), UTC)
    except UnreadableError as error:
        raise UserError(f"cannot read {path}: {error}", error.help) from None
    except (OSError, OverflowError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}", "check the path and its mode") from None
    if _OURS.match(data):
        return (fold_journal(data, str(path))[0] if path.suffix == ".jsonl" else parse_result(data, str(path)),)
    slug = re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("._-")[:40] or "file"
    return parse_foreign_results(data, str(path), ImportTarget("elsewhere", slug, utc_stamp(changed)))


def _select_result(found: tuple[Result, ...], name: str, number: int | None) -> Result:
    if number is not None and number <= len(found):
        return found[number - 1]
    if number is None and len(found) == 1:
        return found[0]
    shown = "; ".join(f"{name}:{at} {_summary(each)}" for at, each in enumerate(found[:_MOST_NAMED], start=1))
    raise UserError(f"{name} holds {len(found)} results", f"choose one: {shown}")


def _summary(result: Result) -> str:
    """Return a few words that distinguish a result from others of its file."""
    first = str(result.cells[0].condition) if result.cells else "nothing"
    more = f" and {len(result.cells) - 1} more" if len(result.cells) > 1 else ""
    return f"({result.stack or first + more})"
