"""`fleet.yaml`: what all rigs beside it are together. A file of that name that declares a rig is a rig as any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from llamaherd.checks.fleet import FLEET_CHECKS, FleetContext
from llamaherd.checks.fleet.keys import unfit_files
from llamaherd.checks.mistakes import UNKNOWN_KEY, mistakes
from llamaherd.diagnostics.findings import MOST_SHOWN, Finding, InventoryError, nearest
from llamaherd.inventory.inheritance import EXTENDS
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.gateway import FleetFile, Gateway
from llamaherd.inventory.served import split_served
from llamaherd.inventory.server_keys import ServerKey
from llamaherd.inventory.yamlfile import Document, read_yaml
from llamaherd.text.quoting import comment

FLEET = "fleet.yaml"
_OF_A_RIG = ("rig", EXTENDS)
"""Keys that say that a file is a rig, whatever it is called."""


@dataclass(frozen=True)
class FleetSurvey:
    """What a fleet's file says, as far as it can be read, where that stands, and what is wrong with its text."""

    declared: FleetFile | None
    document: Document | None
    findings: tuple[Finding, ...] = ()


NO_FLEET_FILE = FleetSurvey(None, None)


def is_fleet_file(file: Path) -> bool:
    """Whether a file beside rigs is the fleet's own, and none of a rig."""
    if file.name != FLEET:
        return False
    try:
        return not any(key in read_yaml(file).data for key in _OF_A_RIG)
    except InventoryError:
        return True


def survey_fleet_file(folder: Path) -> FleetSurvey:
    """The fleet's file in a folder of rigs; nothing where there is none."""
    file = folder / FLEET
    if not file.exists() or not is_fleet_file(file):
        return NO_FLEET_FILE
    try:
        document = read_yaml(file)
    except InventoryError as error:
        return FleetSurvey(None, None, error.findings)
    known = list(FleetFile.model_fields)
    strange = [key for key in document.data if key not in known]
    if strange:
        return FleetSurvey(None, document, tuple(_unknown(document, str(key), known) for key in strange))
    try:
        declared = FleetFile.model_validate(document.data, context={"folder": file.resolve().parent})
    except ValidationError as error:
        found = mistakes(document, error.errors(include_url=False), MOST_SHOWN)
        return FleetSurvey(None, document, tuple(found))
    return FleetSurvey(declared, document)


def backing_up(declared: FleetFile | None, rigs: Mapping[str, Rig]) -> tuple[frozenset[str], ...]:
    """Which of these rigs back each other up: those that answer for a model, and those that are gateways."""
    gateway = declared.gateway if declared else None
    if gateway is None:
        return ()
    gateways = frozenset(name for name in gateway.on if name in rigs)
    groups = [gateways, *(_answering(name, gateway, rigs) for name in gateway.models)]
    return tuple(group for group in dict.fromkeys(groups) if len(group) > 1)


def _answering(model: str, gateway: Gateway, rigs: Mapping[str, Rig]) -> frozenset[str]:
    """The rigs that serve a model; where that is one, also that of its fallback, which answers meanwhile."""
    found: frozenset[str] = frozenset()
    left: str | None = model
    for _ in gateway.models:
        if left is None or len(found) > 1:
            break
        served = (split_served(named, rigs) for named in gateway.models[left].serve)
        found |= {pair[0] for pair in served if pair}
        left = gateway.models[left].fallback
    return found


def fleet_findings(
    survey: FleetSurvey,
    rigs: Mapping[str, Rig],
    names: frozenset[str],
    keys: Sequence[ServerKey] = (),
    *,
    deploying: bool,
) -> list[Finding]:
    """What is wrong or doubtful about a fleet's file: `names` are those of all rigs, also of those not in `rigs`.

    `keys` are those that servers are given. `deploying` needs the others, which lie on this machine.
    """
    if survey.declared is None or survey.document is None:
        return list(survey.findings)
    subject = FleetContext(survey.declared, survey.document, rigs, names, tuple(keys))
    found = [finding for check in FLEET_CHECKS for finding in check(subject)]
    return [*found, *unfit_files(subject, "error" if deploying else "warning")]


def _unknown(document: Document, key: str, known: list[str]) -> Finding:
    help_ = "if this file is a rig, begin it with `rig: NAME`" if key in Rig.model_fields else nearest(key, known)
    return UNKNOWN_KEY.at(document.key((key,)), f"there is no key `{comment(key)[:60]}` in {FLEET}", help_)
