"""What the GPUs of a rig are held to: power limits, clocks and fans, from every boot on. Pure, as all of the plan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from llamaherd.inventory.schema import Rig
from llamaherd.layout import POWER_FANS, POWER_PROGRAM, POWER_TABLE, POWER_UNIT, UNITS, service_of
from llamaherd.plan import GpuPower, PowerPlan, TextFile
from llamaherd.plan.power import declared_power
from llamaherd.render import render
from llamaherd.role.role import Planning, PlanPart


def plan(planning: Planning) -> PlanPart:
    """How GPUs are held; and under WSL, what Windows is to hold them to."""
    rig = planning.rig
    windows = declared_power(rig) if rig.host.wsl is not None else ()
    return PlanPart(fields={"power": plan_power(rig), "windows_power": windows})


def plan_power(rig: Rig) -> PowerPlan | None:
    """How they are held; None where nothing is declared, and under WSL, where GPUs are Windows'."""
    gpus = declared_power(rig)
    if not gpus or rig.host.wsl is not None:
        return None
    return PowerPlan(
        cards=gpus,
        fans=_program(POWER_FANS, "gpu_fans.py"),
        program=_program(POWER_PROGRAM, "gpu_power.py"),
        table=TextFile(path=str(POWER_TABLE), text=_table(rig.rig, gpus)),
        unit=TextFile(
            path=str(UNITS / POWER_UNIT),
            text=render(
                "power/gpu-power.service.j2",
                rig=rig.rig,
                program=POWER_PROGRAM,
                table=POWER_TABLE,
                before=_served(rig),
            ),
        ),
    )


def _program(path: PurePosixPath, module: str) -> TextFile:
    """Return the text of a module that is shipped alone, as a program."""
    text = (Path(__file__).parent / "onhost" / module).read_text(encoding="utf-8")
    return TextFile(path=str(path), text=text, mode="0755")


def _table(rig: str, gpus: Iterable[GpuPower]) -> str:
    head = (
        f"# Written by llamaherd for rig `{rig}`: change the inventory, not this file.\n# card, which one, W, MHz, %\n"
    )
    return head + "".join(
        f"{gpu.name} {gpu.at} {gpu.limit or '-'} {','.join(map(str, gpu.clocks or '-'))} {gpu.fans or '-'}\n"
        for gpu in gpus
    )


def _served(rig: Rig) -> list[str]:
    """The units that are to find GPUs held already: at boot, Docker starts what is in containers."""
    return sorted(
        {
            f"{service_of(rig.server_of(name))}.service" if each.backend == "systemd" else "docker.service"
            for name, each in rig.instances.items()
        }
    )
