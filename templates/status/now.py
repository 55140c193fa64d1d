"""What servers, GPUs and the newest release of this host are now: a fact a line, from one look that changes nothing.

Every question is bounded in time and asked beside the others.
"""

# For Python 3.10 and its standard library alone. What asks a server comes before it.
import base64
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

PROGRAM_SECONDS = 5
"""For systemd, Docker and the driver."""
ALL_SECONDS = 12.0
"""After which what has not answered is left out."""
PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/usr/lib/wsl/lib"
Facts = list[list[str]]


def said(*words: str) -> tuple[str, str]:
    """What a program prints, and of its complaints the first line; nothing where it hangs or is not there."""
    env = {**os.environ, "PATH": PATH, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROGRAM_SECONDS, env=env, check=False
        )
    except FileNotFoundError:
        return "", f"there is no {words[0]}"
    except (OSError, subprocess.TimeoutExpired):
        return "", f"{words[0]} does not answer within {PROGRAM_SECONDS} s"
    out, err = (each[: 1 << 20].decode(errors="replace") for each in (done.stdout, done.stderr))
    why = "" if done.returncode == 0 else (err.strip() or out.strip() or f"{words[0]} ended with {done.returncode}")
    return out, why.partition("\n")[0]


def units(names: list[str], pids: dict[str, int]) -> Facts:
    """What systemd says of units: state, what it does in it, how it ended."""
    found: Facts = []
    asked = ("Id", "LoadState", "ActiveState", "SubState", "Result", "MainPID")
    out, _ = said("systemctl", "show", *(f"-p{each}" for each in asked), *(f"{name}.service" for name in names))
    for block in out.split("\n\n"):
        parts = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        name = parts.get("Id", "").removesuffix(".service")
        if name in names and all(each in parts for each in asked):
            absent = parts["LoadState"] == "not-found"
            active = "absent" if absent else parts["ActiveState"]
            found.append(["unit", name, active, parts["SubState"], parts["Result"]])
            pids[name] = int(parts["MainPID"])
    return found


def containers(names: list[str], pids: dict[str, int], form: str) -> Facts:
    """What Docker says of containers, in this form: name, state, process, and health where it asks for that."""
    out, why = said("docker", "inspect", "--type", "container", "--format", form, *names)
    found = {}
    for name, status, pid, *health in (line.strip("/ ").split(" ") for line in out.splitlines() if " " in line):
        found[name] = ["container", name, status, *(health or [""])]
        pids[name] = int(pid)
    if not why or "no such" in why.lower() or why == "there is no docker":
        found |= {name: ["container", name, "absent", ""] for name in names if name not in found}
    return [found[name] for name in names if name in found]


def gpus(fields: list[str]) -> Facts:
    """What the driver says of GPUs, in one call."""
    out, why = said("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    rows = [line.split(", ", len(fields) - 1) for line in out.splitlines()[:64] if line.startswith("GPU-")]
    cards = [["card", *row] for row in rows if len(row) == len(fields)]
    return cards or [["driver", why or "nvidia-smi knows no GPU"]]


def release(folder: str) -> Facts:
    """The newest release that is kept here."""
    with suppress(OSError):
        names = [file.name for file in Path(folder).iterdir()]
        numbers = [int(name[:-5]) for name in names if re.fullmatch(r"[0-9]{1,9}\.json", name)]
        if numbers:
            with Path(folder, f"{max(numbers)}.json").open("rb") as file:
                return [["release", str(max(numbers)), base64.b64encode(file.read(1 << 18)).decode()]]
    return []


class Asked(Protocol):
    """A server that can be asked, and what was found of it by now."""

    facts: Facts

    def ask(self) -> None:
        """Ask it."""


def beside(*jobs: Any) -> None:
    """Do all of it at once. What takes too long is left to itself: this program ends without it."""
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    until = time.monotonic() + ALL_SECONDS
    for each in threads:
        each.start()
    for each in threads:
        each.join(max(0.0, until - time.monotonic()))


def tell(facts: Facts) -> None:
    """Say all of it, a line each, whose fields hold no line break and no tab; and that this is all."""
    for fact in [*facts, ["told"]]:
        print("\t".join(re.sub(r"[\x00-\x1f\x7f]", " ", field)[: 1 << 19] for field in fact))
    sys.stdout.flush()


def main(asked: dict[str, Any], server: Callable[[dict[str, Any], int], Asked]) -> None:
    """Ask everybody, and tell it in the end. `server` makes one of what is asked of it and its process."""
    pids: dict[str, int] = {}
    found: dict[str, Facts] = {}
    servers: list[Asked] = []

    def named(backend: str) -> list[str]:
        return [str(each["name"]) for each in asked["servers"] if each["backend"] == backend]

    def systemd() -> None:
        found["units"] = units(names, pids) if (names := named("systemd")) else []

    def docker() -> None:
        found["containers"] = containers(names, pids, asked["form"]) if (names := named("compose")) else []

    def states() -> Facts:
        return [*found.get("units", []), *found.get("containers", [])]

    def serving() -> None:
        beside(systemd, docker)
        gone = {name for _, name, state, *_ in states() if state in DOWN}
        servers.extend(server(each, pids.get(each["name"], 0)) for each in asked["servers"] if each["name"] not in gone)
        beside(*(each.ask for each in servers))

    def driver() -> None:
        found["gpus"] = gpus(asked["fields"]) if asked["fields"] else []

    beside(serving, driver)
    cards = found.get("gpus", [["driver", "nvidia-smi does not end"]])
    tell([*states(), *cards, *release(asked["releases"]), *chain(*(list(each.facts) for each in servers))])
    os._exit(0)  # one thread may be held fast by the driver


DOWN = ("absent", "inactive", "failed", "exited", "created", "dead", "paused")
"""States in which a server is asked nothing."""
