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
