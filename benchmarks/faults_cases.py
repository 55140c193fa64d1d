"""What `faults.py` does to servers while something is killed: good changes, and such as are taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple, get_args

from benchmarks.switches import FAILS_AT_PROMPTS, Rig, chat, template, words
from box.cli import BOX

OTHER_KEY = BOX / "other-api-key"
UP = ("up", "-v", "--yes")
NO_UNIT = ("--override-kv", "gemma3.block_count=int:99")
NO_CONTAINER = ("--override-kv", "tokenizer.ggml.model=str:none")
EARLIEST = 0.25
"""The part of a run before which it has only read its inventory."""

Change = Callable[[Rig], None]
Victim = Literal["controller", "session", "script", "host"]
"""What is killed: `herd`, the host's end of its connection, the shells that carry its script out there, or the host."""

# Each says whether it has killed anything.
KILLS = {
    # Between two connections there is none for a moment.
    "session": """for try in $(seq 100); do
        set -- $(pidof sshd-session)
        [ "$#" = 0 ] || { kill -9 "$@" && echo killed; exit; }
        sleep 0.02
    done""",
    "script": """for try in $(seq 100); do
        for each in /proc/[0-9]*; do
            case $(tr '\\0' ' ' <"$each/cmdline") in
            'sh -s ' | *python3*' -IS /opt/llamaherd/libexec/onhost/'*'.pyz ') kill -9 "${each#/proc/}" && killed=yes ;;
            esac
        done 2>/dev/null
        [ -z "$killed" ] || { echo killed; exit; }
        sleep 0.02
    done""",
}
# What should not be there.
LEFT = """
cd /var/lib/llamaherd
for server in kept/*; do
    # The previous version stays for the probation.
    states=$(ls -A "$server" | grep -cvxe last -e untried -e before)
    [ "$states" = "$(readlink "$server/last" "$server/before" | sort -u | grep -c .)" ] ||
        echo "$server holds $(ls -A "$server" | tr '\\n' ' ')"
done
find /etc /opt/llamaherd . -name '*.llamaherd-new' -o -path '*/started/*.new' -o -path '*/kept/*/last.new'
ls -d /run/systemd/system/llamaherd-beside-* /run/llamaherd/beside/* 2>/dev/null
[ ! -x /usr/sbin/nft ] || nft list tables | grep llamaherd
for plan in releases/*.plan; do gzip -t <"$plan" || echo "$plan cannot be read"; done
"""
# So that a round does not fail for what another has left.
CLEAN = """
find /etc /opt/llamaherd /var/lib/llamaherd -name '*.llamaherd-new' -delete
rm -rf /var/lib/llamaherd/refused
"""
# What a failed round may have left is stopped, and made anew.
FORGET = """
systemctl stop 'llama-*.service'; rm -f /etc/systemd/system/llama-*.service; systemctl daemon-reload
docker rm -f $(docker ps -aq); rm -rf /etc/llamaherd/compose/* /var/lib/llamaherd/kept /var/lib/llamaherd/refused
"""


@dataclass(frozen=True)
class Case:
    """A change of servers: from what, to what, and by which command."""

    change: Change
    good: bool = True
    before: Change = lambda _: None
    command: tuple[str, ...] = UP
    tried: bool = False
    """Whether it was tried and taken back before."""


def drafter(**keys: object) -> Change:
    """`drafter` with other keys."""
    return lambda rig: rig["instances"]["drafter"].update(keys)


def both(*changes: Change) -> Change:
    """Several changes as one."""

    def change(rig: Rig) -> None:
        for each in changes:
            each(rig)

    return change


def spare(rig: Rig) -> None:
    """One more instance, with a key."""
    given = rig["instances"]["chat"]["api_key"]
    rig["instances"]["spare"] = rig["instances"]["drafter"] | {"backend": "systemd", "port": 8082, "api_key": given}


ASIDE = chat(context=2048)
"""Something else, so that a run on the way back has something to do, whatever the one before came to."""
OTHER = chat(api_key={"file": str(OTHER_KEY)})
CASES = {
    "a unit with other arguments": Case(chat(context=4096)),
    "a container with other arguments": Case(drafter(context=2048)),
    "a unit that fails at prompts": Case(template("chat", FAILS_AT_PROMPTS), good=False),
    "a container that fails at prompts": Case(template("drafter", FAILS_AT_PROMPTS), good=False),
    "a unit that does not load": Case(words("chat", *NO_UNIT), good=False),
    "a container that does not load": Case(words("drafter", *NO_CONTAINER), good=False),
    "a unit with another key": Case(OTHER),
    "a unit with another key that fails at prompts": Case(both(OTHER, template("chat", FAILS_AT_PROMPTS)), good=False),
    "a unit becomes a container": Case(chat(backend="compose")),
    "a container becomes a unit": Case(drafter(backend="systemd")),
    "a unit becomes a container that fails at prompts": Case(
        both(chat(backend="compose"), template("chat", FAILS_AT_PROMPTS)), good=False
    ),
    "a container becomes a unit that does not load": Case(
        both(drafter(backend="systemd"), words("drafter", *NO_CONTAINER)), good=False
    ),
    "two servers change ports": Case(both(chat(port=8081), drafter(port=8080))),
    "two servers change ports, and one fails at prompts": Case(
        both(chat(port=8081), drafter(port=8080), template("drafter", FAILS_AT_PROMPTS)), good=False
    ),
    "an instance more": Case(spare),
    "an instance less": Case(lambda _: None, before=spare),
    "a rollback": Case(chat(context=4096), before=chat(context=4096), command=("rollback", "box", "--yes")),
    "a bad change, tried again": Case(
        template("chat", FAILS_AT_PROMPTS), good=False, command=(*UP, "--retry"), tried=True
    ),
}


# Those that can be begun again and again, whatever became of the run before.
AGAIN = tuple(name for name, case in CASES.items() if case.command == UP and not case.tried)


class Kill(NamedTuple):
    """What is killed while a run is at work, and when."""

    victim: Victim
    moment: float
    """As a part of the time that the run takes; where there are several, of twice the time until it was at work."""
    rest: float
    """Seconds before the next run: what was begun on the host may go on in them."""

    def __str__(self) -> str:
        return f"{self.victim} killed at {self.moment:.0%}, {self.rest:g} s"


class Round(NamedTuple):
    """One fault: what is changed, what is killed meanwhile, and what is declared in the next run."""

    number: int
    case: str
    kills: tuple[Kill, ...]
    """One after another: of a run that begins the change, then of one that goes back and aside, and so on."""
    continues: bool
    """Whether the next run is to bring about the same change; else what was declared before it."""

    def __str__(self) -> str:
        then = "the same" if self.continues else "what was before"
        return f"{self.number}: {self.case}; {'; '.join(map(str, self.kills))}; then {then}"


def drawn(seed: int, number: int, kills: int = 1, cases: Sequence[str] = tuple(CASES)) -> Round:
    """The fault of this number: the same one for the same seed."""
    by = Random(f"{seed} {number}")
    made = (Kill(by.choice(get_args(Victim)), by.uniform(EARLIEST, 1), by.choice((0, 0, 3))) for _ in range(kills))
    return Round(number, by.choice(cases), tuple(made), by.random() < 0.5)
