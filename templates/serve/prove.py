#!/usr/bin/python3 -I
"""Ask a server one prompt. Ends with 0, and says nothing; with 1, and says why it does not answer; or with 2, and says
what about the answer is not as declared, or how much slower it is than the same model was here before.

A second prompt, as long as the first lets it be, says how fast it decodes: by then, the model is in memory. One that is
slow has three tries, and the best counts. Nothing does while it answers others, or while its host computes for others.
What may have any speed, and has served here before, is not measured again: that counts which it had then.
"""

import json
import os
import re
import statistics
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

LARGEST = 1 << 20
"""Bytes of an answer."""
TOKENS, MOST_TOKENS, SECONDS, LEAST_SECONDS = 8, 128, 3, 0.2
"""Of an answer that says how fast it is: no fewer, no more, how long it should take, and must."""
CROWDED = 0.2
"""Of all processors' time, taken by others: what was measured then says nothing."""
TRIES = 3
FLOOR = 0.7
"""Of the speed that the same model had: slower is not taken."""
RECENT, MOST = 5, 20
"""Speeds that count of one model, and those that are kept of all: the median of a few moves by no single one."""
BUSY = re.compile(
    r"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))\S* ([0-9.]+)", re.MULTILINE
)

Speeds = list[dict[str, Any]]


class Answer(NamedTuple):
    """What is said of an answer: its tokens, those drafted and accepted, and tokens a second, 0 where nobody says.

    `counts`: it is long enough to tell the speed, and others did not compute beside it.
    """

    tokens: int
    drafted: int
    accepted: int
    rate: float
    counts: bool


class FailedError(Exception):
    """A prompt is not answered; says why."""


def main(path: str, record: str, out: str, how: str, *pids: str) -> tuple[int, str]:
    """`record`: the speeds that are known; `out`: where they go with this one.

    `how`: `judge` for one that may be taken back for its speed, `any` where any speed will do from now on, `back` for
    one that was put back, and nothing for one that is started as before. `pids` are its processes.
    """
    asked = {**json.loads(Path(path).read_text(encoding="utf-8")), "pids": pids}
    try:
        first = ask(asked)
        if why := undrafted(asked, first):
            return 2, why
        known = speeds(record)
        if how == "back":
            put_back(asked, first, known, Path(out))
            return 0, ""
        return judged(asked, first, known, Path(out), how)
    except FailedError as error:
        return 1, str(error)


def judged(asked: Mapping[str, Any], first: Answer, known: Speeds, out: Path, how: str) -> tuple[int, str]:
    floor, before = asked["floor"], usual(asked, known)
    if how == "any" and not floor and (then := own_speeds(asked, known)):
        keep([*others(asked, known), *then], out)
        return 0, ""
    best, alone = measured(asked, first, floor or (FLOOR * before if how == "judge" else 0))
    if (declared := max(best, first.rate)) < floor:
        return 2, f"it decodes {declared:.1f} tokens/s, and `expect` allows no less than {floor:g}"
    if not alone or not best or not asked.get("same"):
        return 0, ""
    slow = best < FLOOR * before
    if slow and how == "judge" and not floor:
        Path(f"{out}.slow").write_text(str(best), encoding="utf-8")
        why = f"it decodes {best:.1f} tokens/s, and the same model decoded {before:.1f} here before"
        return 2, why + ": `expect: {decode: " + f"{max(best, 0.1):.1f}" + "}` or `herd up --retry` has it so"
    if floor or how == "any" or not slow:
        write(asked, others(asked, known) if slow else known, best, out)
    return 0, ""


def put_back(asked: Mapping[str, Any], first: Answer, known: Speeds, out: Path) -> None:
    """Writes what is known from now on, where this one is as slow itself as what it was put back for."""
    slow = Path(f"{out}.slow")
    if asked.get("same") and slow.exists():
        other = float(slow.read_text(encoding="utf-8"))
        best, alone = measured(asked, first, other / FLOOR * 1.001)
        if alone and 0 < best * FLOOR <= other:
            write(asked, others(asked, known), best, out)


def measured(asked: Mapping[str, Any], first: Answer, enough: float) -> tuple[float, bool]:
    """The best of a few tries, 0 where no speed is told, and whether it answered nobody else then."""
    best = first.rate if first.counts and first.tokens > TOKENS else 0.0
    alone = not in_flight(asked)
    most = max(TOKENS, min(MOST_TOKENS, int(first.rate * SECONDS)))
    for _ in range((TRIES if enough else 1) if first.rate else 0):
        if not alone or (best and best >= enough):
            break
        said = ask(asked, most)
        alone = not in_flight(asked)
        best = max(best, said.rate if said.counts else 0)
    return best, alone


def ask(asked: Mapping[str, Any], tokens: int = 0) -> Answer:
    """What is said of an answer. Raises FailedError where there is none."""
    body = asked["body"] | ({"max_tokens": tokens} if tokens else {})
    request = urllib.request.Request(asked["url"], json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    if asked["key"]:
        request.add_header("Authorization", "Bearer " + Path(asked["key"]).read_text(encoding="utf-8").strip())
    before = computed(asked["pids"])
    try:
        with opener().open(request, timeout=asked["seconds"]) as answer:
            said = json.loads(answer.read(LARGEST))
        message = said["choices"][0]["message"]
        words = message.get("content") or message.get("reasoning_content")
        if not words and not said["usage"]["completion_tokens"]:
            raise FailedError("a prompt is answered with nothing")
        return timed(said.get("timings", {}), crowded(before, computed(asked["pids"])))
    except urllib.error.HTTPError as error:
        raise FailedError(f"a prompt is answered with HTTP {error.code}: {said_of(error.read(LARGEST))}") from None
    except OSError as error:
        raise FailedError(f"a prompt is not answered: {getattr(error, 'reason', error)}") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise FailedError("a prompt is answered with what is no chat completion") from None


def timed(said: Mapping[str, Any], crowded: bool) -> Answer:
    """The first token comes with the prompt: of those after it, engines count one more or less in the same time."""
    count, seconds = int(said.get("predicted_n", 0)), float(said.get("predicted_ms", 0)) / 1000
    drafted, accepted = int(said.get("draft_n", 0)), int(said.get("draft_n_accepted", 0))
    rate = (count - 1) / seconds if seconds > 0 and count > 1 else 0.0
    return Answer(count, drafted, accepted, rate, count >= TOKENS and seconds >= LEAST_SECONDS and not crowded)


def computed(pids: Iterable[str]) -> tuple[int, int]:
    """How long all processors have been there, and how long they have computed for others, in the kernel's ticks."""
    try:
        with Path("/proc/stat").open(encoding="utf-8") as stat:
            user, nice, system, idle, waiting, *more = map(int, stat.readline().split()[1:9])
    except (OSError, ValueError):
        return 0, 0
    busy = user + nice + system + sum(more)
    return busy + idle + waiting, busy - sum(map(own, pids))


def own(pid: str) -> int:
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc", pid, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return 0


def crowded(before: tuple[int, int], after: tuple[int, int]) -> bool:
    return after[1] - before[1] > CROWDED * (after[0] - before[0])


def opener() -> urllib.request.OpenerDirector:
    """Without a proxy: this host is asked."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def in_flight(asked: Mapping[str, Any]) -> bool:
    """Whether it answers others, or what was tried beside it does, on the same GPU it may be: as far as they say so."""
    beside = os.environ.get("BESIDE")
    return busy(asked) or bool(beside and busy(json.loads(Path(beside).read_text(encoding="utf-8"))))


def busy(asked: Mapping[str, Any]) -> bool:
    urls = asked["metrics"] if isinstance(asked["metrics"], list) else [asked["metrics"]]
    return any(busy_at(url, asked) for url in urls)


def busy_at(url: str, asked: Mapping[str, Any]) -> bool:
    request = urllib.request.Request(url)
    if asked["key"]:
        request.add_header("Authorization", "Bearer " + Path(asked["key"]).read_text(encoding="utf-8").strip())
    try:
        with opener().open(request, timeout=2) as answer:
            said = answer.read(LARGEST).decode(errors="replace")
    except OSError as error:
        return isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError)
    return any(float(number) for number in BUSY.findall(said))


def said_of(body: bytes) -> str:
    """The message in an error's body, or the body; on one line."""
    text = body.decode(errors="replace")
    with suppress(ValueError, LookupError, TypeError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())[:200]


def undrafted(asked: Mapping[str, Any], said: Answer) -> str:
    if asked["drafts"] and not said.drafted:
        return "no token was drafted, though drafting is declared"
    if asked["drafts"] and said.drafted >= asked["drafts"] and not said.accepted:
        return f"none of {said.drafted} drafted tokens was accepted: what drafts does not fit the model"
    return ""


def speeds(record: str) -> Speeds:
    """Those that are known, the newest last."""
    with suppress(OSError, ValueError):
        return list(json.loads(Path(record).read_text(encoding="utf-8")))
    return []


def usual(asked: Mapping[str, Any], known: Speeds) -> float:
    """What the same model decoded on the same GPUs; one that does not draft is not held to one that did."""
    alike = [each for each in known if each["same"] == asked.get("same") and each["drafts"] <= bool(asked["drafts"])]
    return statistics.median_low(each["rate"] for each in alike[-RECENT:]) if alike else 0.0


def others(asked: Mapping[str, Any], known: Speeds) -> Speeds:
    """Speeds of other models: what was known of this one is so no more."""
    return [each for each in known if each["same"] != asked["same"]]


def own_speeds(asked: Mapping[str, Any], known: Speeds) -> Speeds:
    """What the very same server decoded here, if it was measured."""
    alike = (each for each in known if each["same"] == asked.get("same") and each["drafts"] == bool(asked["drafts"]))
    return [each for each in alike if "spec" in asked and each.get("spec") == asked["spec"]]


def write(asked: Mapping[str, Any], known: Speeds, best: float, out: Path) -> None:
    one = {"same": asked["same"], "spec": asked.get("spec"), "drafts": bool(asked["drafts"]), "rate": round(best, 3)}
    keep([*known, one], out)


def keep(known: Speeds, out: Path) -> None:
    out.write_text(json.dumps(known[-MOST:]), encoding="utf-8")


code, why = main(*sys.argv[1:])
sys.stdout.write(why)
sys.exit(code if why else 0)
