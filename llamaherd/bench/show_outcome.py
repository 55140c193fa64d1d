"""A measurement as people read it: a table of its values, then what it took, then what is to be known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table

from llamaherd.bench.comparing.show import STYLES, show_estimate, show_ratio
from llamaherd.bench.courses.energy import cost_lines
from llamaherd.bench.courses.load import total_lines
from llamaherd.bench.courses.power import power_lines
from llamaherd.bench.courses.soak import drift_lines
from llamaherd.bench.outcome import Outcome, Value
from llamaherd.bench.results.doubts import doubts
from llamaherd.bench.results.expected import Judged
from llamaherd.bench.results.result import Result
from llamaherd.bench.results.telemetry import Telemetry
from llamaherd.text.terminal import printable
from llamaherd.text.units import show_size


def print_outcome(found: Outcome, to: Console) -> None:
    """All of it."""
    if found.values:
        to.print(_table(found))
    else:
        to.print("nothing was measured that counts")
    for each in found.expected:
        style = "bold red" if each.missed else "green" if each.outcome == "met" else "yellow"
        to.print(f"expected: {each.figure} {each.expected:g} {each.unit}: [{style}]{each}[/]{_measured(each)}")
    for line in (*_of_series(found.result), *_took(found.result), *_held(found.result)):
        to.print(printable(line))
    for text in dict.fromkeys(_notes(found)):
        to.print(f"[yellow]note[/]: {printable(text)}")


def _of_series(result: Result) -> Iterator[str]:
    """What several requests at once, a soak, long answers and power limits say that no cell says by itself."""
    yield from total_lines(result)
    yield from drift_lines(result)
    yield from cost_lines(result)
    yield from power_lines(result)


def _table(found: Outcome) -> Table:
    """Columns of what was before are there where there is any."""
    before = any(value.before for value in found.values)
    headings = ["cell", "", "value", *(["beside the last", ""] if before else [])]
    table = Table(*headings, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    last = None
    for value in found.values:
        cell = "" if value.condition == last else str(value.condition)
        last = value.condition
        name = f"{value.metric.name}, {value.metric.unit}" if value.metric.unit else value.metric.name
        words = [printable(cell), name, show_estimate(value.found, value.metric)]
        words += [show_ratio(value.before) if value.before else "", _verdict(value)] if before else []
        table.add_row(*words)
    return table


def _verdict(value: Value) -> str:
    judged = value.judgement
    if judged is None:
        return "too few runs" if value.before else ""
    return f"[{STYLES[judged.verdict]}]{judged}[/]"


def _measured(judged: Judged) -> str:
    if judged.value is None:
        return ""
    return printable(f", {judged.value:.4g} {judged.unit} ({judged.where})")


def _took(result: Result) -> Iterator[str]:
    """Power, heat and clocks of each GPU, and the energy of the processor."""
    work, rest = result.work, result.rest
    if work is None:
        return
    for gpu in work.gpus:
        name = result.provenance.gpus[gpu.gpu].name if gpu.gpu < len(result.provenance.gpus) else "GPU"
        at_rest = _watts_at_rest(rest, gpu.gpu)
        parts = [f"{gpu.watts:.0f} W{at_rest}, {gpu.peak_watts or gpu.watts:.0f} W at most" if gpu.watts else ""]
        parts += [f"{gpu.celsius_most:.0f} °C at most" if gpu.celsius_most is not None else ""]
        parts += [f"{gpu.sm_mhz:.0f} MHz" if gpu.sm_mhz is not None else ""]
        parts += [f"slowed {each.share:.0%} of the time: {each.reason}" for each in gpu.slowed]
        yield f"GPU {gpu.gpu}, {name}: {'; '.join(part for part in parts if part) or 'it tells nothing'}"
    if work.processor_joules is not None and work.seconds:
        yield f"processor: {work.processor_joules / work.seconds:.0f} W"


def _watts_at_rest(rest: Telemetry | None, number: int) -> str:
    found = next((gpu.watts for gpu in rest.gpus if gpu.gpu == number), None) if rest else None
    return f" ({found:.0f} W at rest)" if found is not None else ""


def _held(result: Result) -> Iterator[str]:
    """Peaks of memory beside the plan."""
    for peak in result.peaks:
        where = "RAM" if peak.gpu is None else f"GPU {peak.gpu}'s memory"
        if peak.held_bytes is not None:
            planned = f", {show_size(peak.planned_bytes)} planned" if peak.planned_bytes else ""
            yield f"{where}: {show_size(peak.held_bytes)} at most{planned}"


def _notes(found: Outcome) -> Iterator[str]:
    """What is to be known: of runs that do not count, of doubts, of what could not be measured."""
    result = found.result
    if group := result.provenance.server.group:
        yield f"measured while group {group} had its model loaded; what a swap takes is not in it"
    excluded = Counter(run.excluded for cell in result.cells for run in cell.runs if run.excluded)
    for why, many in excluded.items():
        yield f"{many} {'run does' if many == 1 else 'runs do'} not count: {why}"
    if result.method.anyway:
        yield f"measured though there was in the way: {', '.join(result.method.anyway)}"
    yield from found.apart
    yield from doubts(result)
    yield from result.work.doubts if result.work else ()
    yield from (f"not measured: {each}" for each in result.unmeasured)
    yield from result.source.notes
