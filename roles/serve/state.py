"""Serve's part of a host's state: units, containers and images, what is known of servers, and who holds ports."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.host.limits import LIMITS_FORMAT, read_limits
from llamaherd.host.serving import BEFORE_OURS, DECIDING, UNIT_ROOTS, ContainerState, ServingState, UnitState
from llamaherd.host.state import Holder, HostState
from llamaherd.layout import BESIDE_UNITS, EXCHANGE, GPU_CHECK, KEPT, KEYS, REFUSED
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.text.numbers import parse_whole
from roles.serve import exchange, keys


def inspect(plan: Plan) -> str:
    """Ask for all that serves, and for what decides whether it serves as planned."""
    return render(
        "serve/inspect.sh.j2",
        read=[f"{build.folder}/bin/{target}" for build in plan.builds for target in build.targets],
        stores=[model.folder for model in plan.models],
        images=plan.images,
        records={image.tag: image.record for image in plan.images},
        units=plan.of("systemd"),
        projects=plan.of("compose"),
        limits=LIMITS_FORMAT,
        ports=sorted({instance.endpoint.port for instance in plan.instances}),
        before_ours=BEFORE_OURS,
        unit_roots=UNIT_ROOTS,
        deciding=DECIDING,
        gpu_check=GPU_CHECK,
        refused=REFUSED,
        kept=KEPT,
        exchange=EXCHANGE,
        beside_units=BESIDE_UNITS,
        keys=KEYS,
        root="",
    )


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "unit", [name, active, enabled, needs_reload, run, spec, port, waits]:
            state.units[name] = UnitState(
                active,
                enabled,
                needs_reload == "yes",
                run,
                spec,
                parse_whole(port) if port else None,
                parse_whole(waits) if waits else None,
            )
        case "project", [name]:
            state.projects.add(name)
        case "container", [name, status, health, run, spec, port, limits]:
            state.containers[name.lstrip("/")] = ContainerState(
                status, health, run, spec, parse_whole(port) if port else None, read_limits(limits)
            )
        case "holder", [port, pid, program, container]:
            state.holders[parse_whole(port)] = Holder(parse_whole(pid), program, container)
        case "own-port", [port, unit]:
            state.own_ports[parse_whole(port)] = unit
        case "serving", [name, what, *rest]:
            state.serving.setdefault(name, ServingState()).tell(what, rest)
        case "image", [tag]:
            state.images.add(tag)
        case "off-cards", [name]:
            state.off_cards.add(name)
        case "closed", [path]:
            state.closed.append(path)
        case _:
            return exchange.parse(state, kind, fields) or keys.parse(state, kind, fields)
    return True
