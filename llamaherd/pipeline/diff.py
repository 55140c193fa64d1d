"""The diff of a host and its plan: causes of changes, texts of files, the saved diff, and its metrics."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import unified_diff
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from llamaherd import __version__
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.layout import UNPLANNED
from llamaherd.onhost.files import Delivery, DriftInput, TextsFound, TextsInput
from llamaherd.pipeline.fleet_files import FLEET, survey_fleet
from llamaherd.pipeline.load import inventory_folder
from llamaherd.pipeline.preview import Preview
from llamaherd.plan import Plan, TextFile
from llamaherd.role.changes import Action, Change
from llamaherd.role.values import ValueChange, merged_changes


@dataclass(frozen=True)
class Causes:
    """The causes of a change: its reasons for which the host has moved, and those for which the inventory has.

    `values` are the settings that differ between the plan of the last run and the present one. `known` is false where
    it is unknown which of the two has moved: `drift` and `inventory` are empty then.
    """

    drift: tuple[str, ...] = ()
    inventory: tuple[str, ...] = ()
    values: tuple[ValueChange, ...] = ()
    known: bool = True

    def __str__(self) -> str:
        moved = {"drift": self.drift, "the inventory has moved": self.inventory}
        return " and ".join(what for what, reasons in moved.items() if reasons)


def find_causes(found: Preview, before: Preview, texts: Mapping[str, bool]) -> tuple[Causes, ...]:
    """Return the causes of each change, in their order; `before` is the preview of the last run's plan.

    No plan contains a key, or a file that is made of keys, such as a gateway's configuration. `texts` has for each such
    file whether it is as a run wrote it; for a file without an entry, the cause is unknown.
    """
    again = {(change.kind, change.name, reason) for change in before.changes for reason in change.reasons}

    def of(change: Change) -> Causes:
        drift, inventory = [], []
        for reason in change.reasons:
            path = _file_of_keys(reason)
            moved = (change.kind, change.name, reason) in again if path is None else not texts.get(path, True)
            if moved:
                drift.append(reason)
            elif path is None or path in texts:
                inventory.append(reason)
        return Causes(tuple(drift), tuple(inventory))

    return tuple(map(of, found.changes))


def _file_of_keys(reason: str) -> str | None:
    """Return the file that has another text by this reason, if it is made of keys."""
    path, found, _ = reason.partition(" has another text")
    return path if found and any(PurePosixPath(path).is_relative_to(each) for each in UNPLANNED) else None


_TEXTS_SECONDS = 60


def query_diffs(remote: Remote, stale: Iterable[TextFile]) -> dict[str, str]:
    """Return a unified diff of each file, by path, from the host's text to the planned text. Raise RemoteError."""
    planned = {file.path: file for file in stale}
    if not planned:
        return {}
    found = query_verb(remote, "llamaherd.files.texts", TextsInput(tuple(planned)), TextsFound, _TEXTS_SECONDS)
    there = found.texts
    return {path: text_diff(there[path], file) for path, file in planned.items() if path in there}


def text_diff(there: str, file: TextFile) -> str:
    """Return the unified diff from the host's text to the planned text."""
    lines = unified_diff(
        there.splitlines(), file.text.splitlines(), f"{file.path} (there)", f"{file.path} (planned)", lineterm=""
    )
    return "\n".join(lines)


SAVED_FORMAT: Final = 2
"""The format of a diff of a part; that of a whole diff is 1. A change that earlier versions cannot read adds one."""

MOST_SAVED_BYTES, _MOST_VALUES = 8 << 20, 100_000
"""Bytes and values of a saved diff. A change has some 200 bytes and six values; the texts of a rig's files have some
30 kB if all of them differ."""

SAVED_PREFIX = b'{\n "format":'
"""The beginning of a saved diff."""

_NOT_SAVED = {"rigs": {"__all__": {"changes": {"__all__": {"values"}}}}}
"""What earlier versions do not read."""

_READINGS = re.compile(r"\d+(?= (?:MHz|%))")
"""Readings of a GPU: they differ from one inspection to the next although nothing has changed."""


class _Saved(BaseModel):
    """The base of all parts of a saved diff: no value is converted, and no further key is allowed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True, allow_inf_nan=False)


class SavedDowntime(_Saved):
    """The downtime of a server, as it was shown."""

    seconds: float
    measured: bool
    beside: bool = False
    gate: int = 0


class SavedValue(_Saved):
    """A setting with its old and its new value; None where it is absent."""

    key: str
    old: str | None
    new: str | None


class SavedChange(_Saved):
    """A change, as it was shown; `drift` and `inventory` are its causes, if they were known.

    `values` are only shown: the file of a saved diff has none.
    """

    action: Action
    kind: str
    name: str
    reasons: tuple[str, ...]
    away: SavedDowntime | None = None
    drift: tuple[str, ...] | None = None
    inventory: tuple[str, ...] | None = None
    values: tuple[SavedValue, ...] = ()

    def __str__(self) -> str:
        return f"{self.action} {self.kind} {self.name}: {'; '.join(self.reasons)}"

    @property
    def identity(self) -> tuple[str, ...]:
        """The values that identify it: not its causes, downtime, order of reasons, or readings of GPUs."""
        reasons = sorted(_READINGS.sub("…", reason) for reason in self.reasons)
        return (self.action, self.kind, self.name, *reasons)


class SavedRig(_Saved):
    """A rig, as it was shown; `plan` is the digest of its plan and of its host's address.

    `left` counts the changes outside of the selected part; None without a selection.
    """

    rig: str
    plan: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    changes: tuple[SavedChange, ...]
    diffs: dict[str, str]
    problems: tuple[str, ...]
    unreached: str
    left: int | None = None

    def shown(self) -> dict[str, Any]:
        """Return what `herd plan --json` prints of it."""
        return self.model_dump(mode="json", exclude={"plan"}, exclude_none=True)


class SavedDiff(_Saved):
    """The output of one `herd plan`: the version of llamaherd, the selected part in `only`, if any, and the rigs."""

    format: Literal[1, 2] = 1
    llamaherd: str = __version__
    only: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    rigs: Annotated[tuple[SavedRig, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if len(set(self.names)) != len(self.names):
            raise ValueError("must name each rig once")
        if (self.only is not None) != (self.format == SAVED_FORMAT):
            raise ValueError(f"must be of format {SAVED_FORMAT} where it is of a part alone, and of no other")
        return self

    @classmethod
    def of(cls, rigs: Sequence[SavedRig], only: Sequence[str]) -> Self:
        """Return the diff of these rigs, or of `only` a part of each."""
        return cls(rigs=tuple(rigs), only=tuple(only), format=SAVED_FORMAT) if only else cls(rigs=tuple(rigs))

    @property
    def names(self) -> tuple[str, ...]:
        """Its rigs, in the order in which they were shown."""
        return tuple(each.rig for each in self.rigs)


@dataclass(frozen=True)
class SavedDifference:
    """How a rig differs from a saved diff: by another plan, by new changes, or by changes that are gone."""

    rig: str
    another_plan: bool
    new: tuple[SavedChange, ...]
    gone: tuple[SavedChange, ...]


def saved_rig(
    rig: Rig, plan: Plan, found: Preview, causes: Sequence[Causes], texts: Mapping[str, str], unreached: str
) -> SavedRig:
    """Return a rig, as it is shown: `texts` are diffs by path, `unreached` is why its inspection failed."""
    return SavedRig(
        rig=plan.rig,
        plan=plan_digest(rig, plan),
        changes=_saved_changes(found.changes, causes),
        diffs=dict(texts),
        problems=found.problems,
        unreached=unreached,
        left=len(found.left) if plan.only and found.left is not None else None,
    )


def plan_digest(rig: Rig, plan: Plan) -> str:
    """Return a hash of a rig's plan, or of the selected part of it, and of its host's address."""
    host = [rig.connect.host, rig.connect.port]
    chosen = {"only", *plan.only.fields, *(["parts"] if plan.only.roles else [])} if plan.only else None
    text = json.dumps([plan.model_dump(mode="json", include=chosen), host], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def compare_with_saved(saved: SavedRig, rig: Rig, plan: Plan, found: Preview) -> SavedDifference | None:
    """Return how a rig that was inspected again differs from its saved diff; None if it does not."""
    now = _saved_changes(found.changes, ())
    then = {change.identity for change in saved.changes}
    still = {change.identity for change in now}
    new = tuple(change for change in now if change.identity not in then)
    gone = tuple(change for change in saved.changes if change.identity not in still)
    another_plan = plan_digest(rig, plan) != saved.plan
    return SavedDifference(plan.rig, another_plan, new, gone) if another_plan or new or gone else None


def _saved_changes(changes: Sequence[Change], causes: Sequence[Causes]) -> tuple[SavedChange, ...]:
    return tuple(
        SavedChange(
            action=change.action,
            kind=change.kind,
            name=change.name,
            reasons=tuple(change.reasons),
            away=SavedDowntime(**asdict(change.away)) if change.away else None,
            values=tuple(SavedValue(**asdict(value)) for value in changed_values(change, cause)),
            drift=cause.drift if cause and cause.known else None,
            inventory=cause.inventory if cause and cause.known else None,
        )
        for change, cause in with_causes(changes, causes)
    )


def with_causes(changes: Sequence[Change], causes: Sequence[Causes]) -> list[tuple[Change, Causes | None]]:
    """Return each change with its causes; None for each if there are no causes."""
    known: Sequence[Causes | None] = causes or [None] * len(changes)
    return [*zip(changes, known, strict=True)]


def changed_values(change: Change, cause: Causes | None) -> tuple[ValueChange, ...]:
    """Return the settings that a change replaces: those of the running server first, then those of the last plan."""
    return merged_changes(change.values, cause.values if cause else ())


def saved_diff_bytes(saved: SavedDiff, again: str) -> bytes:
    """Return the content of a saved diff's file. Raises UserError if it is larger than what can be read again."""
    value = saved.model_dump(mode="json", exclude_none=True, exclude=_NOT_SAVED)
    data = json.dumps(value, indent=1).encode() + b"\n"
    if len(data) > MOST_SAVED_BYTES or _too_many(value):
        raise UserError(
            "the diff is larger than a saved diff may be, and was not saved",
            f"save fewer rigs at a time: `{again}`",
        )
    return data


def parse_saved_diff(data: bytes, name: str, again: str) -> SavedDiff:
    """Return the saved diff in a file of this name. Raises UserError; `again` is the command that saves it again."""
    try:
        value = json.loads(data.decode())
    except RecursionError:
        raise _unusable(name, "it is nested too deeply", again) from None
    except ValueError as error:
        ends = isinstance(error, json.JSONDecodeError) and _ends_early(error)
        raise (_unusable(name, "it ends in the middle", again) if ends else _not_a_saved_diff(name)) from None
    found = value.get("format") if isinstance(value, dict) else None
    if type(found) is not int or "llamaherd" not in value:
        raise _not_a_saved_diff(name)
    if found > SAVED_FORMAT:
        raise UserError(
            f"{name} is a saved diff of format {found}, and this llamaherd, {__version__}, reads format {SAVED_FORMAT}",
            f"use the llamaherd that saved it, or save it again with this one: `{again}`",
        )
    if _too_many(value):
        raise _unusable(name, f"it holds more than {_MOST_VALUES:,} values", again)
    try:
        return SavedDiff.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = first["msg"].removeprefix("Value error, ")
        raise _unusable(name, f"`{place or 'rigs'}`: {problem[0].lower()}{problem[1:]}", again) from None


def _unusable(name: str, why: str, again: str) -> UserError:
    return UserError(f"{name} is no saved diff that can be used: {why}", f"save it again: `{again}`")


def _not_a_saved_diff(name: str) -> UserError:
    return UserError(f"{name} is no saved diff", "name a file that `herd plan --save FILE` has written")


def _ends_early(error: json.JSONDecodeError) -> bool:
    return error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")


def _too_many(value: Any) -> bool:
    """Return whether it contains too many values to validate: pydantic reports every wrong one."""
    left, count = [value], 0
    while left and count <= _MOST_VALUES:
        each = left.pop()
        inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        count += len(inner)
        left.extend(inner)
    return count > _MOST_VALUES


METRICS = {
    "llamaherd_diff_seconds": "When herd diff ran, in seconds since 1970.",
    "llamaherd_diff_seen_seconds": "When herd diff last inspected a host, in seconds since 1970.",
    "llamaherd_diff_failed": "Whether the inspection of a host failed, or its plan cannot be applied.",
    "llamaherd_diff_changes": "Changes that herd up would make.",
    "llamaherd_diff_drift_changes": "Changes for which the host has moved.",
    "llamaherd_diff_inventory_changes": "Changes for which the inventory has moved.",
}
"""The help text of each metric."""


def metrics_text(rigs: Sequence[SavedRig], at: int) -> str:
    """Return the metrics of a diff at `at`, in seconds since 1970, in Prometheus' text format."""
    samples = [("llamaherd_diff_seconds", f" {at}"), *(each for rig in rigs for each in _rig_metrics(rig, at))]
    lines: list[str] = []
    for name, meaning in METRICS.items():
        if own := [f"{name}{rest}" for metric, rest in samples if metric == name]:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", *own]
    return "".join(f"{line}\n" for line in lines)


def _rig_metrics(rig: SavedRig, at: int) -> Iterator[tuple[str, str]]:
    """Yield the metrics of one rig; names of rigs need no escaping."""
    labels = f'{{rig="{rig.rig}"}}'
    failed = bool(rig.unreached or rig.problems)
    yield "llamaherd_diff_failed", f"{labels} {int(failed)}"
    if failed:
        return
    yield "llamaherd_diff_seen_seconds", f"{labels} {at}"
    yield "llamaherd_diff_changes", f"{labels} {len(rig.changes)}"
    if all(change.drift is not None for change in rig.changes):
        yield "llamaherd_diff_drift_changes", f"{labels} {sum(bool(change.drift) for change in rig.changes)}"
        yield "llamaherd_diff_inventory_changes", f"{labels} {sum(bool(change.inventory) for change in rig.changes)}"


_DELIVERY_SECONDS = 60


@dataclass(frozen=True)
class MonitoredFleet:
    """The rig that runs the monitoring of a fleet, and all rigs of the inventory."""

    rig: Rig
    rigs: Mapping[str, Rig]

    def require_all(self, compared: Collection[str]) -> None:
        """Raise UserError if a diff leaves out a rig: the metrics of a diff replace all earlier ones."""
        if missing := sorted(self.rigs.keys() - compared):
            raise UserError(f"`--tell` needs every rig, but {missing[0]} was left out", "name the inventory's folder")


def monitored_fleet(inventory: Path) -> MonitoredFleet:
    """Return the rig that receives metrics of drift. Raises UserError if there is none."""
    surveyed = survey_fleet(inventory)
    file = inventory_folder(inventory) / FLEET
    declared = surveyed.own.monitoring if surveyed.own else None
    if declared is None or not declared.drift:
        raise UserError(
            f"no rig receives metrics of drift by {file}",
            "declare it, as in `monitoring: {on: attic, drift: true}`, and run `herd up`",
        )
    if declared.on not in surveyed.around:
        raise UserError(f"rig `{declared.on}` runs the monitoring, but cannot be read", "`herd check` prints why")
    return MonitoredFleet(surveyed.around[declared.on], surveyed.around)


def deliver_metrics(watcher: Rig, text: str) -> None:
    """Write metrics to the file that the monitoring rig's exporter reads. Raise RemoteError or UserError."""
    delivery = query_verb(
        Remote(watcher.connect), "llamaherd.files.write_drift", DriftInput(text), Delivery, _DELIVERY_SECONDS
    )
    if not delivery.read:
        raise UserError(f"nothing on {watcher.rig} reads metrics of drift", f"`herd up {watcher.rig}` changes that")
