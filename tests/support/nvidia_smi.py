"""A stand-in for nvidia-smi: GPUs that keep their state in a file, and say what the real one says.

What it answers was taken from nvidia-smi 580.159.04 (an H100: queries, `-i`, unknown GPUs; and the texts that the
program has for `-pl`, `-lgc`, `-rgc` and `-pm`) and from reports of others (what laptops refuse, and that it ends with
0 then: NVIDIA/open-gpu-kernel-modules#483, Dreaming-Codes/nvidia_oc#22).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes as long as all the rest, and this is started some ten times a test
    from typing import Any

    Card = dict[str, Any]

STATE = Path(os.environ.get("FAKE_CARDS", "/nonexistent"))
NAMES = {
    "uuid": "uuid",
    "pci.bus_id": "pci",
    "name": "name",
    "persistence_mode": "persistence",
    "power.limit": "limit",
    "power.default_limit": "default",
    "power.min_limit": "least",
    "power.max_limit": "most",
    "clocks.current.graphics": "clock",
}
SHORT = {"clocks.gr": "clocks.current.graphics"}
"""Fields that may be asked for by another name than the one that stands over the answer."""
UNITS = {"power": " [W]", "clocks": " [MHz]", "fan": " [%]"}
OWN_SPEED = 30
"""At which a GPU that controls its fans itself lets them run, in percent."""
WARNING = "Treating as warning and moving on.\nAll done."


def card(uuid: str, pci: str, name: str, limits: tuple[float, float, float] | None, **more: Any) -> Card:
    """A GPU: its default, least and most watts, None for one that tells none. `refuses`: what it does not do.

    `fans`: what each is told, in percent, None for the GPU's own control.
    """
    default, least, most = limits or (None, None, None)
    state = {"limit": default, "default": default, "least": least, "most": most, "clock": 210, "lock": None}
    made = {"uuid": uuid, "pci": pci, "name": name, "persistence": "Enabled", "refuses": [], "fans": [None, None]}
    return {**made, **state, **more}


def query(cards: list[Card], fields: list[str], style: str) -> None:
    """`--query-gpu`, as CSV without units beside the figures."""
    fields = [SHORT.get(field, field) for field in fields]
    if "noheader" not in style:
        print(", ".join(field + UNITS.get(field.partition(".")[0], "") for field in fields))
    for number, each in enumerate(cards):
        print(", ".join(str(number) if field == "index" else told(each, field) for field in fields))


def list_processes(cards: list[Card], fields: list[str], style: str) -> None:
    """`--query-compute-apps`: a GPU's `apps` are pairs of what it shows for a process and for its memory."""
    if "noheader" not in style:
        print(", ".join(field + (" [MiB]" if "memory" in field else "") for field in fields))
    for each in cards:
        for pid, memory in each.get("apps", []):
            values = {"pid": pid, "gpu_uuid": each["uuid"], "used_memory": memory}
            print(", ".join(str(values[field]) for field in fields))


def told(each: Card, field: str) -> str:
    """One field of a GPU. Of fans the first counts; NVML's stand-in in C keeps them in a file of its own."""
    if field != "fan.speed":
        return shown(each[NAMES[field]])
    fans = each["fans"]
    if "FAKE_FANS" in os.environ:
        lines = [line.split() for line in Path(os.environ["FAKE_FANS"]).read_text().splitlines()]
        fans = next([int(speed) for speed in line[4:]] for line in lines if line[0] == each["uuid"])
    return shown((fans[0] or OWN_SPEED) if fans else None)


def shown(value: Any) -> str:
    """A value as the CSV has it."""
    return "[N/A]" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def set_limit(each: Card, watts: float) -> str:
    """`-pl`, and what is said to it."""
    if "limit" in each["refuses"] or each["limit"] is None:
        return f"Changing power management limit is not supported for GPU: {each['pci']}.\n{WARNING}"
    if not each["least"] <= watts <= each["most"]:
        print(
            f"Provided power limit {watts:.2f} W is not a valid power limit which should be between "
            f"{each['least']:.2f} W and {each['most']:.2f} W for GPU {each['pci']}\n"
            "Terminating early due to previous errors."
        )
        sys.exit(2)
    before, each["limit"] = each["limit"], watts
    return f"Power limit for GPU {each['pci']} was set to {watts:.2f} W from {before:.2f} W.\nAll done."


def change(each: Card, option: str, value: str) -> str:
    """One setting, and what is said to it."""
    if "everything" in each["refuses"]:
        print(f"Failed to set power management limit for GPU {each['pci']}: Insufficient Permissions")
        sys.exit(4)
    if option == "-pl":
        return set_limit(each, float(value))
    if option == "-pm":
        if "persistence" not in each["refuses"]:
            each["persistence"] = "Enabled" if value == "1" else "Disabled"
        return "All done."
    if "clocks" in each["refuses"]:
        return f"Setting locked GPU clocks is not supported for GPU {each['pci']}.\n{WARNING}"
    each["lock"] = [int(clock) for clock in value.split(",")] if option == "-lgc" else None
    least, most = each["lock"] or (0, 0)
    set_to = f'GPU clocks set to "(gpuClkMin {least}, gpuClkMax {most})" for GPU {each["pci"]}\n'
    return (set_to if each["lock"] else "") + "All done."


def main(arguments: list[str]) -> None:
    """What the command line asks for. Every change is kept in `changes`, and in `noted` what
    the GPU's note said meanwhile."""
    state = json.loads(STATE.read_text())
    if "broken" in state:
        print(state["broken"])
        sys.exit(9)
    cards, style, rest = state["cards"], "", iter(arguments)
    for argument in rest:
        if argument == "-i":
            at = next(rest)
            cards = [each for each in cards if at in (each["uuid"], each["pci"])]
        elif argument.startswith("--format="):
            style = argument
    if not cards:
        print("No devices were found")
        sys.exit(6)
    if "-L" in arguments:
        print("\n".join(f"GPU {number}: {each['name']} (UUID: {each['uuid']})" for number, each in enumerate(cards)))
        return
    apps = next((a for a in arguments if a.startswith("--query-compute-apps=")), None)
    if apps:
        list_processes(cards, apps.partition("=")[2].split(","), style)
        return
    option = next((a for a in arguments if a in ("-pl", "-pm", "-lgc", "-rgc")), None)
    if option is None:
        fields = next(a for a in arguments if a.startswith("--query-gpu=")).partition("=")[2]
        query(cards, fields.split(","), style)
        return
    value = "" if option == "-rgc" else arguments[arguments.index(option) + 1]
    state["changes"] = [*state.get("changes", []), f"{option} {value}".strip()]
    for each in cards:
        note = Path(os.environ["RUNTIME_DIRECTORY"], each["uuid"])
        # Whoever else sets a limit, a measurement for one, has none.
        state["noted"] = [*state.get("noted", []), note.read_text().strip() if note.exists() else ""]
        print(change(each, option, value))
    STATE.write_text(json.dumps(state))


if __name__ == "__main__":
    main(sys.argv[1:])
