"""Whether the virtual address is somewhere, and whether a gateway answers there: asked on a host by ip and curl."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.answers import Answers
from llamaherd.layout import ADDRESS_PROGRAM, ADDRESS_UNIT
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Plan, VirtualAddressPlan
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified
from llamaherd.role.service import service_check
from llamaherd.text.quoting import url_host


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of its unit, its interfaces, and the gateway at the address."""
    made, gateway = plan.virtual_address, plan.gateway
    if made is None or gateway is None:
        return
    unit = ("systemctl", "show", "-p", "ActiveState", "-p", "UnitFileState", ADDRESS_UNIT)
    yield Probe("virtual address unit", "", unit, errors=True)
    yield Probe("virtual address", "", (str(ADDRESS_PROGRAM), "where"), errors=True)
    scheme = "https" if gateway.secure else "http"
    url = f"{scheme}://{url_host(made.address)}:{gateway.port}/healthz"
    # Wherever it is, the gateway there responds at it.
    requested = ("curl", "-q", "-s", "-k", "--noproxy", "*", "--max-time", "5", "-o", "/dev/null")
    yield Probe("virtual address asked", "", (*requested, "-w", r"%{http_code}\n", url), errors=True)


def judge(judging: Judging) -> Verified:
    """What follows from the answers."""
    made = judging.plan.virtual_address
    return Verified(checks=tuple(address_checks(made, judging.answers))) if made else Verified()


def address_checks(made: VirtualAddressPlan, answers: Answers) -> Iterator[Check]:
    """Its unit, and what is at the address."""
    yield service_check("virtual address unit", answers.get(("virtual address unit", ""), ""), ADDRESS_UNIT)
    here = answers.get(("virtual address", ""), "").strip() == f"{made.address} here"
    status = answers.get(("virtual address asked", ""), "").strip()
    where = "on this rig" if here else "on another host"
    if status == "200":
        yield Check("virtual address", True, f"{made.address} is {where}, and a gateway answers there")
    elif here:
        yield Check("virtual address", False, f"{made.address} is {where}, and no gateway answers there")
    else:
        yield Check("virtual address", False, f"nobody answers at {made.address}: neither rig has it")
