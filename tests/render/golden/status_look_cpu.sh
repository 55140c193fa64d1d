{
LC_ALL=C
export LC_ALL
# A fact: its kind, and its fields. None holds a tab or a line break. It is written at once: others may be said meanwhile.
say() {
    fact=$1
    shift
    for field; do
        fact="$fact	$field"
    done
    printf '%s\n' "$fact"
}
# A text: what it is, and of what; then its lines, which may hold anything.
section() {
    printf '@ %s\t%s\n' "$1" "$2"
}
lines() {
    awk '{print "\t" $0}'
}
# After this nothing is said.
finish() {
    echo '@ end'
    exit 0
}
# What files of the login shell print comes before this, perhaps in the same line.
printf '\n@ begin\n'

# What runs here now, in one look that changes nothing. Keys stay in their files, and prompts in their servers.
if command -v python3 >/dev/null; then
    python3 -I - '{"servers": [{"name": "llama-chat", "backend": "systemd", "host": "127.0.0.1", "port": 8080, "health": "/health", "figures": [["/slots", "/metrics"]], "in_turn": [], "models": "/v1/models", "key": "/etc/llamaherd/keys/chat", "one_process": true}, {"name": "llama-drafter", "backend": "compose", "host": "127.0.0.1", "port": 8081, "health": "/health", "figures": [["/slots", "/metrics"]], "in_turn": [], "models": "/v1/models", "key": null, "one_process": true}], "form": "{{.Name}} {{.State.Status}} {{.State.Pid}} {{with .State.Health}}{{.Status}}{{end}}", "fields": [], "releases": "/var/lib/llamaherd/releases"}' <<'END'
"""What a server says of itself now: whether it is well, which models are loaded, its requests, and what it writes.

Counts are told: no text of a prompt is.
"""

# For Python 3.10 and its standard library alone.
import http.client
import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HTTP_SECONDS = 2.0
"""For one answer of a server: ik_llama.cpp answers nobody while it reads a prompt."""
APART = 1.0
"""Seconds between two reads of what is counted."""
MOST = 4 << 20
"""Bytes of an answer. Of ik_llama.cpp's slots each has its prompt in it."""
STILL = 2
"""Ticks of processor that a server takes in two seconds that does nothing."""
RUNNING = re.compile(r"^(?:llamacpp:requests_processing|vllm:num_requests_running)(?:\{.*\})? ([0-9.e+]+)$", re.M)
WAITING = re.compile(r"^(?:llamacpp:requests_deferred|vllm:num_requests_waiting)(?:\{.*\})? ([0-9.e+]+)$", re.M)
WRITTEN = re.compile(r"^vllm:generation_tokens_total(?:\{.*\})? ([0-9.e+]+)$", re.M)
"""The one that counts while an answer is written: llama.cpp's is counted up at its end."""

NOT_LOADED = "400"
"""What a server of several models says of one that it has not loaded."""

Facts = list[list[str]]


def get(server: dict[str, Any], path: str) -> tuple[str, str]:
    """The status of an answer and its text; in place of a status `refused`, `silent` or `broken`."""
    line = http.client.HTTPConnection(server["host"], server["port"], timeout=HTTP_SECONDS)
    try:
        headers = {}
        if server["key"] and path != server["health"]:
            headers["Authorization"] = (
                "Bearer " + Path(server["key"]).read_text(encoding="utf-8").split("\n")[0].strip()
            )
        line.request("GET", path, headers=headers)
        answer = line.getresponse()
        text = answer.read(MOST + 1)
        return str(answer.status) if len(text) <= MOST else "broken", text.decode(errors="replace")
    except TimeoutError:
        return "silent", ""
    except ConnectionRefusedError:
        return "refused", ""
    except (OSError, ValueError, http.client.HTTPException):
        return "broken", ""
    finally:
        line.close()


def stat(pid: int) -> list[str]:
    """The fields of a process from its state on, as /proc has them."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    return []


def stands_still(pid: int, before: list[str]) -> str:
    """Whether a process is `stopped`, or `idle`: it has done nothing since, and waits for no processor or disk."""
    now = stat(pid)
    if now[:1] in (["T"], ["t"]):
        return "stopped"
    if not before or not now or now[9] != before[9] or ticks(now) - ticks(before) > STILL:
        return ""
    states = {stat_of_thread(each)[:1] for each in Path(f"/proc/{pid}/task").glob("*/stat")}
    return "" if states & {"R", "D"} else "idle"


def ticks(fields: list[str]) -> int:
    """How long a process has computed."""
    return int(fields[11]) + int(fields[12])


def stat_of_thread(file: Path) -> str:
    """The state of a thread."""
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace").rpartition(") ")[2]
    return ""


def slots(text: str) -> list[dict[str, Any]] | None:
    """What a server says of its slots; None where it says nothing of them."""
    with suppress(ValueError, RecursionError):
        told = json.loads(text)
        if isinstance(told, list) and all(isinstance(each, dict) for each in told):
            return told
    return None


def in_turn(text: str) -> list[tuple[str, str]]:
    """What a server of several models says of each: `loaded`, `loading`, `unloaded`, or `failed`."""
    told: Any = None
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        told = json.loads(text)["data"]
    found = []
    for each in told if isinstance(told, list) else []:
        status = each.get("status") if isinstance(each, dict) else None
        if isinstance(status, dict) and re.fullmatch(r"[a-z]{1,20}", str(status.get("value"))):
            found.append((str(each.get("id")), "failed" if status.get("failed") is True else str(status["value"])))
    return found


def busy(slot: dict[str, Any]) -> bool:
    """Whether a slot has a request; ik_llama.cpp says it by a number."""
    return slot.get("is_processing") is True or slot.get("state") == 1


def decoded(slot: dict[str, Any]) -> int:
    """Tokens of the answer by now: none yet while the prompt is read."""
    told = slot.get("next_token")
    told = told[0] if isinstance(told, list) and told else told
    count = told.get("n_decoded") if isinstance(told, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 40 else 0


def written_since(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> int:
    """Tokens that slots have written between two reads: those of a request that has begun since from its first on."""
    known = {slot.get("id"): (slot.get("id_task"), decoded(slot)) for slot in before if busy(slot)}
    total = 0
    for slot in now:
        if busy(slot):
            task, count = known.get(slot.get("id"), (None, 0))
            total += max(0, decoded(slot) - (count if task == slot.get("id_task") else 0))
    return total


def total(pattern: re.Pattern[str], text: str) -> float | None:
    """The sum of a metric over its labels."""
    found = pattern.findall(text)
    with suppress(ValueError):
        return sum(map(float, found)) if found else None
    return None


class Server:
    """A server, and what was found of it by now."""

    def __init__(self, asked: dict[str, Any], pid: int) -> None:
        self.asked, self.pid, self.name = asked, pid, str(asked["name"])
        self.facts: Facts = []

    def say(self, kind: str, *fields: object) -> None:
        """A fact of it."""
        self.facts.append([kind, self.name, *map(str, fields)])

    def ask(self) -> None:
        """Ask it, up to the first question that it does not answer in time."""
        before = stat(self.pid) if self.pid else []
        status, _ = get(self.asked, self.asked["health"])
        self.say("health", status)
        if status == "silent" and self.pid and self.asked["one_process"] and (how := stands_still(self.pid, before)):
            self.say("still", how)
        if status != "200":
            return
        if self.asked["in_turn"]:
            self.tell_models()
        for figures in self.asked["figures"]:
            slots_at, metrics_at = figures
            status, text = get(self.asked, slots_at)
            if status != NOT_LOADED:
                break
        if status == "silent":
            self.say("silent")
            return
        every, since = slots(text) if status == "200" else None, time.monotonic()
        status, metrics = get(self.asked, metrics_at)
        metrics = metrics if status == "200" else ""
        self.tell_requests(every, metrics)
        count = total(WRITTEN, metrics)
        if every is None and count is None:
            return
        time.sleep(max(0.0, since + APART - time.monotonic()))
        path = slots_at if every is not None else metrics_at
        status, text = get(self.asked, path)
        milliseconds = round((time.monotonic() - since) * 1000)
        if status != "200":
            return
        if every is not None and (again := slots(text)) is not None:
            self.say("wrote", written_since(every, again), milliseconds)
        elif every is None and count is not None and (later := total(WRITTEN, text)) is not None:
            self.say("wrote", max(0, round(later - count)), milliseconds)

    def tell_models(self) -> None:
        """Which of its models is loaded, of those that it has in turn."""
        status, text = get(self.asked, self.asked["models"])
        for name, value in in_turn(text) if status == "200" else []:
            if name in self.asked["in_turn"]:
                self.say("model", name, value)

    def tell_requests(self, every: list[dict[str, Any]] | None, metrics: str) -> None:
        """How many requests it answers, reads and lets wait."""
        if every is not None:
            active = [slot for slot in every if busy(slot)]
            self.say("slots", len(every), len(active), sum(decoded(slot) == 0 for slot in active))
        elif (running := total(RUNNING, metrics)) is not None:
            self.say("running", round(running))
        if (waiting := total(WAITING, metrics)) is not None:
            self.say("waiting", round(waiting))


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


main(json.loads(sys.argv[1]), Server)
END
else
    say python
fi

finish
} </dev/null
