"""Verify Docker, and GPUs for its containers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.host.responses import ProbeOutputs, parse_pairs
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Plan
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified

_UNITS = ("docker.service", "docker.socket", "containerd.service")
# Files of JSON are YAML, too, and NVIDIA's tool writes one value a line in both.
_CDI = """\
specs=$(ls /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json 2>/dev/null)
[ -z "$specs" ] || {
    value='"\\{0,1\\}: "\\{0,1\\}\\([^",]*\\)"\\{0,1\\},\\{0,1\\}$'
    printf 'names=%s\\n' "$(sed -n "s/^[ -]*\\"\\{0,1\\}name$value/\\1/p" $specs | sort -u | tr '\\n' ' ')"
    printf 'missing=%s\\n' "$(sed -n "s/^[ -]*\\"\\{0,1\\}hostPath$value/\\1/p" $specs | sort -u |
        while read -r path; do [ -e "$path" ] || printf '%s ' "$path"; done)"
}
"""


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of Docker's daemon and units, and of what describes GPUs to containers."""
    if plan.runtime is None:
        return
    yield Probe("Docker", "", ("docker", "version"), seconds=20, code=True)
    yield Probe("Docker units", "", ("systemctl", "show", "-p", "Id,ActiveState,UnitFileState", *_UNITS))
    if plan.runtime.toolkit:
        yield Probe("container toolkit", "", ("nvidia-ctk", "--version"))
        yield Probe("container toolkit", "", ("nvidia-container-cli", "--version"))
        yield Probe("cdi", "", ("sh", "-c", _CDI))


def judge(judging: Judging) -> Verified:
    """Return the checks of Docker, and of GPUs for its containers."""
    return Verified(checks=tuple(runtime_checks(judging.plan, judging.answers)))


def runtime_checks(plan: Plan, answers: ProbeOutputs) -> Iterator[Check]:
    """Yield a check of each planned part."""
    if plan.runtime and ("Docker", "") in answers:
        yield _docker(answers["Docker", ""], answers.get(("Docker units", ""), ""))
    if plan.runtime and plan.runtime.toolkit:
        yield _container_toolkit(plan.runtime.toolkit.version, answers.get(("container toolkit", ""), ""))
        yield _gpus(plan.runtime.toolkit.devices, answers.get(("cdi", ""), ""))


def _docker(version: str, shown: str) -> Check:
    """Return the check of the daemon, its own unit, and the units that it needs."""
    responds = version.partition("\n")[0] == "0"
    units = {found["Id"]: found for each in shown.split("\n\n") if "Id" in (found := parse_pairs(each))}
    runs = {name for name, unit in units.items() if unit.get("ActiveState") == "active"}
    # What a Docker that runs does without, the next boot does without.
    needed = [name for name in _UNITS if name in units and ("docker.service" not in runs or name in runs)]
    masked = [name for name in needed if units[name].get("UnitFileState", "").startswith("masked")]
    if masked:
        which = f"{' and '.join(masked)} {'is' if len(masked) == 1 else 'are'} masked"
        now = "it responds" if responds else "it does not respond"
        return Check("Docker", False, f"{now}, and systemd may not start it, as {which}: see `herd preflight`")
    return Check("Docker", responds, "responds" if responds else "it does not respond: `herd up`")


def _container_toolkit(declared: str | None, output: str) -> Check:
    """Return the check of versions."""
    # Each program prints the version of its own package, and of the library that it has loaded.
    patterns = {
        "nvidia-ctk": r"^.* version ([0-9.]+)",
        "nvidia-container-cli": r"^cli-version: ([0-9.]+)",
        "library": r"^lib-version: ([0-9.]+)",
    }
    matches = {name: re.search(pattern, output, re.MULTILINE) for name, pattern in patterns.items()}
    versions = {name: found[1] if found else "not there" for name, found in matches.items()}
    found = set(versions.values())
    if len(found) > 1 or found == {"not there"}:
        return Check("toolkit", False, ", ".join(f"{name} {version}" for name, version in versions.items()))
    (version,) = found
    right = declared in (None, version)
    return Check("toolkit", right, version if right else f"{version}, declared is {declared}")


def _gpus(devices: tuple[str, ...], output: str) -> Check:
    """Return the check of GPUs."""
    # What Docker would give comes from files, which the driver may have left behind.
    told = parse_pairs(output)
    described, missing = set(told.get("names", "").split()), told.get("missing", "").split()
    if lacking := [device for device in devices if device.rpartition("=")[2] not in described]:
        return Check("GPUs", False, f"no CDI file describes {', '.join(lacking)}: `herd up`")
    if missing:
        return Check("GPUs", False, f"CDI names what is not there: {', '.join(missing)}: `herd up`")
    return Check("GPUs", True, f"CDI describes {', '.join(devices)}, and all that it names is there")
