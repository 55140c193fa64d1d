"""Servers that exchange something in one run: all of them change, or each serves on as before."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.box.bench import HERD, PORTS, Bench, Declared
from tests.box.changes import KILL_PROGRAM, OTHER_LAYERS, REFUSES
from tests.box.mending.test_renamed import leftovers, talks

NAMES = ("chat", "drafter", "ik-chat", "talk")
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
"""A chat template: this model completes text, and returns markers of other templates."""
BIG = {"context": 32768, "kv": "f32", "extra_args": ["--cache-ram", "256", "--swa-full", "--chat-template", PLAIN]}
"""1.8 GB of RAM, of which the rig has room for one."""


def swap(rig: Declared, one: str, other: str, *keys: str) -> None:
    """Have two instances exchange what they are declared with by these keys."""
    mine, theirs = rig["instances"][one], rig["instances"][other]
    for key in keys:
        mine_had, theirs_had = mine.pop(key, None), theirs.pop(key, None)
        mine |= {key: theirs_had} if theirs_had is not None else {}
        theirs |= {key: mine_had} if mine_had is not None else {}


def ports_of_units(rig: Declared) -> None:
    swap(rig, "chat", "ik-chat", "port")


def ports_of_both_backends(rig: Declared) -> None:
    swap(rig, "chat", "drafter", "port")


def ports_and_backends(rig: Declared) -> None:
    swap(rig, "chat", "drafter", "port", "backend")


def backends(rig: Declared) -> None:
    swap(rig, "chat", "drafter", "backend")


def names(rig: Declared) -> None:
    rig["instances"]["chat"], rig["instances"]["ik-chat"] = rig["instances"]["ik-chat"], rig["instances"]["chat"]


def models(rig: Declared) -> None:
    swap(rig, "chat", "drafter", "model", "draft", "kv", "context", "extra_args")


def chat_is_big(rig: Declared) -> None:
    rig["host"]["ram"] = "3300MB"
    rig["instances"]["chat"] |= BIG


def room(rig: Declared) -> None:
    rig["host"]["ram"] = "3300MB"
    rig["instances"]["ik-chat"] |= BIG


def room_for_a_new_one(rig: Declared) -> None:
    rig["host"]["ram"] = "3300MB"
    rig["instances"]["talk"] = rig["instances"]["ik-chat"] | BIG | {"port": 8085}


def name_and_port_of_a_new_one(rig: Declared) -> None:
    """A new one takes the port of `chat`, which takes the port of one that goes."""
    rig["instances"]["talk"] = rig["instances"]["chat"]
    rig["instances"]["chat"] = rig["instances"].pop("ik-chat")


def as_it_is(_: Declared) -> None:
    """The rig as it is."""


class Exchange(NamedTuple):
    """What two servers exchange: the first to be started, the other one, how it is declared, and from what."""

    first: str
    second: str
    declare: Callable[[Declared], None]
    before: Callable[[Declared], None] = as_it_is


EXCHANGES = {
    "ports of two units": Exchange("chat", "ik-chat", ports_of_units),
    "ports of a unit and a container": Exchange("chat", "drafter", ports_of_both_backends),
    "ports and backends": Exchange("chat", "drafter", ports_and_backends),
    "backends": Exchange("chat", "drafter", backends),
    "names": Exchange("chat", "ik-chat", names),
    "models": Exchange("chat", "drafter", models),
    "room": Exchange("chat", "ik-chat", room, chat_is_big),
    "room for a new one": Exchange("chat", "talk", room_for_a_new_one, chat_is_big),
    "a name, and the port of one that goes": Exchange("chat", "talk", name_and_port_of_a_new_one),
}


def declared(bench: Bench, change: Callable[[Declared], None], *bad: str) -> Declared:
    """Declare the rig with this change, and those instances so that they answer no prompt; return it."""
    rig = bench.rig()
    change(rig)
    for name in bad:
        given = rig["instances"][name].get("extra_args", "")
        most = given[:-1] if isinstance(given, list) else ["--cache-ram", "256", "--chat-template"]
        rig["instances"][name]["extra_args"] = [*most, REFUSES]
    bench.declare(rig)
    return rig


def running(bench: Bench) -> dict[str, str]:
    """Return what runs as each instance: its backend, its spec, and which process it is."""
    found = {}
    for name in NAMES:
        found[name] = bench.sh(
            f"pid=$(systemctl show -P MainPID llama-{name}); [ $pid = 0 ] || "
            f"echo unit $(tr '\\0' '\\n' </proc/$pid/environ | sed -n s/^LLAMAHERD_SPEC=//p) $pid; "
            "docker inspect --type container -f '{{if .State.Running}}container "
            '{{index .Config.Labels "llamaherd.spec"}} {{.State.Pid}}{{end}}\' '
            f"llama-{name} 2>/dev/null",
            check=False,
        )
    return {name: said for name, said in found.items() if said}


def specs(found: dict[str, str]) -> dict[str, str]:
    """Return backend and spec of each."""
    return {name: said.rpartition(" ")[0] for name, said in found.items()}


def all_serve(bench: Bench, rig: Declared, found: dict[str, str]) -> None:
    """All of these, and no other, answer a prompt at the ports that the rig has for them."""
    assert found.keys() == rig["instances"].keys()
    for instance in rig["instances"].values():
        talks(bench, instance["port"])


def in_sync(bench: Bench, rig: Declared) -> None:
    """Everything runs as declared, and the next run has nothing to do."""
    found = running(bench)
    planned = {each["name"]: each["spec"] for each in bench.plan()["instances"]}
    assert {name: said.split()[1] for name, said in found.items()} == planned
    all_serve(bench, rig, found)
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output
    assert running(bench) == found


def fails(bench: Bench, before: Declared, was: dict[str, str], failed: str, *options: str) -> None:
    """A run changes nothing in the end, and says which server did not serve; the next one says so at once."""
    ended = bench.up("--yes", *options)
    assert ended.code == 1, ended.output
    assert "Traceback" not in ended.output
    assert (
        f"serve as before, since they change together, and llama-{failed} does not serve as declared: " in ended.output
    )
    back = running(bench)
    assert specs(back) == specs(was), ended.output
    all_serve(bench, before, back)
    again = bench.up("--yes")
    assert again.code == 1, again.output
    assert "what is declared was tried on 20" in again.output
    assert "would change together with it" in again.output
    assert running(bench) == back
    nothing_open(bench)


def nothing_open(bench: Bench) -> None:
    """No exchange is open."""
    assert bench.sh("ls -d /var/lib/llamaherd/kept/.exchange*", check=False) == ""


@pytest.fixture(scope="module")
def nft(converged: Bench) -> Iterator[None]:
    """The host has nft, which most tests do without."""
    converged.sh("apt-get install -qq -y --no-install-recommends nftables >/dev/null 2>&1; test -x /usr/sbin/nft")
    yield
    converged.sh("apt-get purge -qq -y nftables >/dev/null 2>&1; test ! -x /usr/sbin/nft")


def exchanges(bench: Bench, case: Exchange) -> None:
    """Try it with the first one bad, the second one, both, and none."""
    before = declared(bench, case.before)
    assert bench.up("--yes").code == 0
    for bad in ((case.first,), (case.second,), (case.first, case.second)):
        was = running(bench)
        declared(bench, case.declare, *bad)
        # What was tried before, alone or by another test, is not tried again unless requested.
        fails(bench, before, was, bad[0], "--retry")
    rig = declared(bench, case.declare)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    in_sync(bench, rig)
    nothing_open(bench)


@pytest.mark.rare
@pytest.mark.parametrize("case", EXCHANGES)
def test_all_change_or_none(bench: Bench, case: str) -> None:
    exchanges(bench, EXCHANGES[case])


@pytest.mark.parametrize(
    ("case", "bad"),
    [
        ("ports of two units", "ik-chat"),
        ("ports of a unit and a container", "chat"),
        pytest.param("backends", "drafter", marks=pytest.mark.rare),
    ],
)
def test_what_served_comes_back_where_one_is_bad(bench: Bench, case: str, bad: str) -> None:
    was = running(bench)
    declared(bench, EXCHANGES[case].declare, bad)
    fails(bench, bench.rig(), was, bad)


def test_one_that_goes_does_not_come_back_where_its_place_is_taken(bench: Bench) -> None:
    """Two are renamed: the first serves under its new name, and what it replaced stays stopped as the second fails."""
    rig = bench.rig()
    rig["instances"]["a-talk"] = rig["instances"].pop("chat")
    rig["instances"]["b-talk"] = rig["instances"].pop("ik-chat")
    rig["instances"]["b-talk"]["extra_args"] = ["--cache-ram", "256", *OTHER_LAYERS]
    bench.declare(rig)
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "llama-ik-chat serves again, after " in ended.output
    assert "llama-chat was started again" not in ended.output
    assert bench.sh("systemctl is-active llama-a-talk llama-ik-chat llama-chat", check=False).split() == [
        "active",
        "active",
        "inactive",
    ]
    talks(bench, PORTS["chat"])
    talks(bench, PORTS["ik-chat"])
    bench.declare(bench.rig())
    assert bench.up("--yes").code == 0
    assert leftovers(bench, "a-talk") + leftovers(bench, "b-talk") == ""


SOON = 0.8
"""Seconds after a line within which a run has not ended: a server takes longer to load."""
MOMENTS = (
    "stopping llama-chat: ",
    "stopping llama-ik-chat: ",
    "starting llama-chat.service: ",
    "starting llama-ik-chat.service: ",
    "restoring the previous versions: ",
)
"""Lines of an exchange, in their order; the last one is of a bad one."""


def cut_off(bench: Bench, moment: str, *, on_host: bool) -> None:
    """Begin an exchange, and kill the run soon after this line; or its session on the host."""

    def later(line: str) -> bool:
        if moment not in line:
            return False
        time.sleep(random.uniform(0, SOON))
        if on_host:
            bench.sh(KILL_PROGRAM, check=False)
        return True

    bench.killed(signal.SIGKILL, later, [HERD, "up", "-v", "--yes", "--retry"])
    bench.sh("flock -w 120 /run/llamaherd/locks/host true")


def is_cut_off(bench: Bench, moment: str, *, on_host: bool, bad: bool) -> None:
    """The next run ends as the first would have, and no server is lost."""
    was = running(bench)
    rig = declared(bench, ports_of_units, *(["ik-chat"] if bad else []))
    cut_off(bench, moment, on_host=on_host)
    ended = bench.up("--yes")
    if bad:
        assert ended.code == 1, ended.output
        assert specs(running(bench)) == specs(was), ended.output
        all_serve(bench, bench.rig(), running(bench))
    else:
        assert ended.code == 0, ended.output
        in_sync(bench, rig)
    nothing_open(bench)


@pytest.mark.rare
@pytest.mark.parametrize("on_host", [True, False], ids=["host", "herd"])
@pytest.mark.parametrize("moment", MOMENTS[:4])
def test_a_good_exchange_that_is_cut_off(bench: Bench, moment: str, on_host: bool) -> None:
    is_cut_off(bench, moment, on_host=on_host, bad=False)


@pytest.mark.parametrize("on_host", [True, pytest.param(False, marks=pytest.mark.rare)], ids=["host", "herd"])
@pytest.mark.parametrize("moment", [*(pytest.param(each, marks=pytest.mark.rare) for each in MOMENTS[:4]), MOMENTS[4]])
def test_a_bad_exchange_that_is_cut_off(bench: Bench, moment: str, on_host: bool) -> None:
    is_cut_off(bench, moment, on_host=on_host, bad=True)


@pytest.mark.rare
def test_one_that_fails_within_a_minute_takes_all_back(bench: Bench) -> None:
    """Their probation is one."""
    was = running(bench)
    declared(bench, ports_of_units)
    assert bench.up("--yes").code == 0
    bench.sh("systemctl kill -s KILL llama-ik-chat")
    bench.sh("while systemctl -q is-active llamaherd-probation-chat; do sleep 0.5; done")
    assert specs(running(bench)) == specs(was)
    all_serve(bench, bench.rig(), running(bench))
    again = bench.up("--yes")
    assert again.code == 1, again.output
    assert "ik-chat serves as before: what is declared was tried on 20" in again.output
    assert "llama-chat would change together with it" in again.output


@pytest.mark.rare
@pytest.mark.usefixtures("nft")
@pytest.mark.parametrize("case", EXCHANGES)
def test_all_change_or_none_with_nft(bench: Bench, case: str) -> None:
    exchanges(bench, EXCHANGES[case])
