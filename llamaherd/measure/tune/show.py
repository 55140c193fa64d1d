"""Print the result of a search: before and after, steps, failures, the lines of YAML."""

from __future__ import annotations

from collections import Counter

from rich.console import Console

from llamaherd.measure.results.comparison_table import VERDICT_STYLES
from llamaherd.measure.tune.final_measurements import (
    DEPTH_HEADINGS,
    POWER_HEADINGS,
    Standing,
    changes,
    depth_rows,
    keys_text,
    percent,
    power_lines,
    power_rows,
    ratio_text,
    score_text,
    verdict_text,
)
from llamaherd.measure.tune.result import FAILED, SearchResult, yaml_lines
from llamaherd.text.tables import make_table, print_table
from llamaherd.text.terminal import printable


def print_result(end: SearchResult, name: str, to: Console) -> None:
    """Print the best candidate against the declared keys, steps, failures, and the lines for instance `name`."""
    _print_standings(end, to)
    _print_depth(end, to)
    for judged in end.judged:
        to.print(printable(str(judged)), highlight=False)
    _print_steps(end, to)
    for why, count in Counter(each.why for each in end.failed).items():
        says = list(dict.fromkeys(each.says for each in end.failed if each.why == why))
        # Each cache was judged once, and has figures of its own.
        shown = "; ".join(says if why == "quality" else says[:1])
        to.print(f"[yellow]note[/]: {count} {FAILED[why]}: {printable(shown)}")
    for note in end.notes:
        to.print(f"[yellow]note[/]: {printable(note)}")
    _print_found(end, name, to)
    _print_power(end, to)


def _print_standings(end: SearchResult, to: Console) -> None:
    rows = [each for each in (end.before, end.after) if each]
    if not rows:
        return
    table = make_table("", str(end.aim), "code, t/s", "prefill, t/s", "vs declared", "verdict")
    for each in rows:
        judged = each.judgement
        verdict = f"[{VERDICT_STYLES[judged.verdict]}]{verdict_text(end.aim, judged)}[/]" if judged else ""
        name = printable(changes(each.candidate, end.declared))
        table.add_row(name, score_text(end.aim, each), *_speeds(each), ratio_text(each.ratio), verdict)
    print_table(table, to)


def _print_depth(end: SearchResult, to: Console) -> None:
    if end.deeper is None:
        return
    table = make_table(*DEPTH_HEADINGS)
    for row in depth_rows(end.deeper, end.declared):
        table.add_row(*map(printable, row))
    to.print(f"at the full depth of a request, {end.deeper.after.depth:,} tokens, in one start of each:")
    print_table(table, to)


def _print_power(end: SearchResult, to: Console) -> None:
    if end.power is None:
        return
    table = make_table(*POWER_HEADINGS)
    for row in power_rows(end.power):
        table.add_row(*row)
    to.print(f"the best candidate under power limits, compared with {end.power.base} W:")
    print_table(table, to)
    lines = power_lines(end.power)
    to.print("in the inventory:" if lines else "no other power limit is known to be better", highlight=False)
    for line in lines.splitlines():
        to.print(f"  {line}", highlight=False)


def _speeds(each: Standing) -> tuple[str, str]:
    return (f"{each.code:.1f}" if each.code else "-", f"{each.prefill:,.0f}" if each.prefill else "-")


def _print_steps(end: SearchResult, to: Console) -> None:
    if end.steps:
        to.print("steps that were better than all before:")
    for step in end.steps:
        text = f"{percent(step.gain):>9}  {end.aim.shown(step.score)}  {printable(keys_text(step.keys))}"
        to.print(f"  {text}", highlight=False)


def _print_found(end: SearchResult, name: str, to: Console) -> None:
    tried = f"{end.tried} tried in {end.seconds / 60:.1f} min"
    lines = yaml_lines(end)
    if not lines:
        to.print(f"{tried}; no candidate is significantly better than the declared keys")
        return
    if end.doubt:
        to.print(f"[red]warning[/]: {printable(end.doubt)}", highlight=False)
    to.print(f"{tried}; in the inventory, under `{name}`:")
    for line in lines.splitlines():
        indent = len(line) - len(line.lstrip())
        to.print(f"  {' ' * indent}{printable(line)}", highlight=False)
