"""A search as people read it, and as machines do."""

from __future__ import annotations

from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from llamaherd.bench.comparing.show import STYLES
from llamaherd.text.terminal import printable
from llamaherd.tune.aim import Figures
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.journal import Search, candidate_of
from llamaherd.tune.keys import settings_of
from llamaherd.tune.outcome import Standing, failures, standings, steps

_FAILED = {
    "memory": "ran out of memory",
    "load": "did not start",
    "answer": "gave no answer",
    "quality": "lost too much quality",
    "draft": "did not draft",
}


def print_search(search: Search, declared: Candidate, to: Console) -> None:
    """The best ones beside what is declared, what each step gave, what failed, and the lines of YAML."""
    standing = standings(search, declared)
    if standing:
        _print_standings(search, standing, declared, to)
    _print_steps(search, to)
    for why, count in failures(search).items():
        says = next(each.says for each in search.trials if each.why == why)
        to.print(f"[yellow]note[/]: {count} {_FAILED[why]}: {printable(says)}")
    _print_found(search, declared, to)


def as_json(search: Search, declared: Candidate) -> dict[str, Any]:
    """What was found, and how it was."""
    return {
        "identity": search.head.identity,
        "for": search.head.aim.purpose,
        "tried": len(search.known),
        "seconds": round(search.seconds, 1),
        "found": search.found.keys if search.found else None,
        "changes": yaml_lines(search, declared),
        "standings": [
            {
                "keys": dict(each.candidate.keys),
                "score": each.score,
                "beside": [each.beside.value, each.beside.low, each.beside.high] if each.beside else None,
                "verdict": each.judgement.verdict if each.judgement else None,
            }
            for each in standings(search, declared)
        ],
        "failed": dict(failures(search)),
    }


def yaml_lines(search: Search, declared: Candidate) -> str:
    """What would be otherwise in the inventory, as its lines; empty where nothing would be."""
    if search.found is None:
        return ""
    data: dict[str, Any] = {}
    for each in settings_of(candidate_of(search.found.keys), declared):
        at = data
        for key in each.path[:-1]:
            at = at.setdefault(key, {})
        at[each.path[-1]] = each.value
    return yaml.safe_dump(data, sort_keys=False) if data else ""


def _print_standings(search: Search, standing: list[Standing], declared: Candidate, to: Console) -> None:
    aim = search.head.aim
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for head in ("", str(aim), "code, t/s", "prefill, t/s", "beside what is declared", "verdict"):
        table.add_column(head)
    for each in standing:
        name = "as declared" if each.candidate == declared else _changes(each.candidate, declared)
        figures = each.trials[-1].figures
        beside = each.beside
        said = f"{100 * (beside.value - 1):+.1f} %" if beside else ""
        if beside and beside.low is not None and beside.high is not None:
            said += f" ({100 * (beside.low - 1):+.1f} to {100 * (beside.high - 1):+.1f})"
        verdict = f"[{STYLES[each.judgement.verdict]}]{each.judgement}[/]" if each.judgement else ""
        table.add_row(printable(name), aim.shown(each.score), *_figures(figures), said, verdict)
    to.print(table)


def _figures(figures: Figures) -> tuple[str, str]:
    code, prefill = figures.decode.get("code"), figures.prefill
    return (f"{code:.1f}" if code else "-", f"{prefill:,.0f}" if prefill else "-")


def _changes(candidate: Candidate, declared: Candidate) -> str:
    return ", ".join(map(str, settings_of(candidate, declared))) or "as declared"


def _print_steps(search: Search, to: Console) -> None:
    found = list(steps(search))
    if not found:
        return
    to.print("what was better than all before it, as it was read then:")
    for step in found:
        keys = str(Candidate(step.keys)) if step.keys else "the same"
        off = ", ".join(f"no {key}" for key, value in step.keys if value is None)
        what = ", ".join(part for part in ("" if keys == "nothing set" else keys, off) if part)
        to.print(f"  {100 * step.gain:+6.1f} %  {search.head.aim.shown(step.score)}  {printable(what)}")


def _print_found(search: Search, declared: Candidate, to: Console) -> None:
    tried = f"{len(search.known)} tried in {search.seconds / 60:.1f} min"
    lines = yaml_lines(search, declared)
    if not lines:
        to.print(f"{tried}; nothing is known to be better than what is declared")
        return
    to.print(f"{tried}; in the inventory, under `{search.head.instance}`:")
    for line in lines.splitlines():
        to.print(f"  {printable(line)}", highlight=False)
