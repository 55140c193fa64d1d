"""Whether the virtual address is somewhere, and whether a gateway answers there: asked on a host by ip and curl."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.answers import Answers
from llamaherd.layout import ADDRESS_PROGRAM, ADDRESS_UNIT
from llamaherd.plan import Plan, VirtualAddressPlan
from llamaherd.render import render
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified
from llamaherd.role.service import service_check
from llamaherd.text.quoting import url_host


def question(plan: Plan) -> str:
    """Ask its unit, its interfaces, and the gateway at the address."""
    made, gateway = plan.virtual_address, plan.gateway
    if made is None or gateway is None:
        return ""
    scheme = "https" if gateway.secure else "http"
    url = f"{scheme}://{url_host(made.address)}:{gateway.port}/healthz"
    return render("virtual_address/verify.sh.j2", unit=ADDRESS_UNIT, program=ADDRESS_PROGRAM, url=url)


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
