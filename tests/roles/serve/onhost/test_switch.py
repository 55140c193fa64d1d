"""Single steps of a switch: what is checked, kept, moved away, reported, and left as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from llamaherd.onhost.servers import FailedSwitch, NeededGpu, StartedServer
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError
from roles.serve.onhost.backends import ContainerBackend
from roles.serve.onhost.model import (
    ArgumentCheck,
    ContainerCheck,
    KeyRemovalInput,
    RefusalInput,
    RemovalInput,
    SwitchInput,
)
from roles.serve.onhost.removal import refuse, remove_key
from roles.serve.onhost.removal import remove as run_removal
from roles.serve.onhost.speed import Proof, ProofInput
from roles.serve.onhost.switch import switch as run_switch
from roles.serve.transaction import UndeclaredServer
from tests.support.played_host import File, PlayedHost, Running
from tests.support.switches import copied, decided, instance_of, one_run, serving_host, settled, two_plans

OLD, NEW = two_plans("chat")
KEPT = "/var/lib/llamaherd/kept/llama-chat"
UNIT = "/etc/systemd/system/llama-chat.service"
BEFORE, AFTER = instance_of(OLD, "chat").spec, instance_of(NEW, "chat").spec
CHECK = ContainerCheck("name: x", "image:1", True, True, "1", ("/m",), "/k", {"A": "b"}, ("--x",))


@dataclass
class Scripted(PlayedHost):
    """A host on which programs end as they are told, by words of their command line."""

    ends: dict[str, Ended] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    full: bool = False
    lacks: str = ""

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        line = " ".join(argv)
        self.ran.append(line)
        for words, ended in self.ends.items():
            if words in line:
                return ended
        return super().run(argv, seconds=seconds, text=text, environment=environment)

    def write(self, path: str, text: str | bytes, *, mode: int = 0o600, owner: str = "root") -> None:
        if self.full:
            raise OSError(28, "No space left on device", path)
        super().write(path, text, mode=mode, owner=owner)

    def lacks_gpus(self, system: object, needs: Sequence[NeededGpu], pids: Sequence[str]) -> str:
        del system, needs, pids
        return self.lacks

    def lacks_ram(self, system: object, need: int, own: Sequence[str], others: Sequence[str]) -> str:
        del system, need, own, others
        return self.lacks


SERVING = serving_host(OLD, "chat")


def host(**more: Any) -> Scripted:
    """Return a host on which the old version serves."""
    values = vars(copied(SERVING))
    return Scripted(**{**values, **more})  # fields of both classes


def given(on: PlayedHost, **more: Any) -> SwitchInput:
    """Return the switch to the new version."""
    found = decided(on, NEW, "chat")
    assert found
    return replace(found, **more)


def failure(on: PlayedHost, what: SwitchInput) -> FailedError:
    """Return why a switch failed; the old version serves on, and was never stopped."""
    run = on.units["llama-chat"].run
    with pytest.raises(FailedError) as caught:
        run_switch(what, on, on)
    assert (on.running("llama-chat"), on.units["llama-chat"].run) == (BEFORE, run)
    return caught.value


@pytest.mark.parametrize("name", ["chat", "drafter"])
def test_a_server_of_another_program_with_the_same_name_is_left_alone(name: str) -> None:
    service, path = f"llama-{name}", f"/etc/systemd/system/llama-{name}.service"
    on = PlayedHost({})
    what = decided(on, NEW, name)
    assert what
    if name == "chat":
        on.files[path] = File("[Service]\nExecStart=/usr/bin/llama-server\n")
        on.units[service] = Running("active", "", 7)
    else:
        on.containers[service] = Running("running", "", 7)
    before = copied(on)
    with pytest.raises(FailedError) as caught:
        run_switch(what, on, on)
    assert caught.value.message.startswith(f"{service} is left as it is: ")
    assert "give the instance another name" in caught.value.fix
    assert (on.files, on.units, on.containers) == (before.files, before.units, before.containers)
    assert on.steps == 0


@pytest.mark.parametrize(("file", "is_of_others"), [("/etc/llamaherd/compose/x/compose.yaml", False), ("/y", True)])
def test_a_container_of_our_file_is_ours_also_without_our_label(file: str, is_of_others: bool) -> None:
    labels = {"com.docker.compose.project.config_files": file}
    on = host(ends={"docker inspect": Ended(0, json.dumps([{"Config": {"Labels": labels}}]))})
    found = ContainerBackend(on).is_of_others("llama-x", "/etc/llamaherd/compose/x/compose.yaml")
    assert found is is_of_others


def test_a_unit_of_ours_is_replaced_also_if_a_first_run_was_cut_off() -> None:
    on = PlayedHost({})
    what = decided(on, NEW, "chat")
    assert what
    on.files[UNIT] = File("# Written by llamaherd for instance `chat` of rig `attic`\n[Service]\n")
    run_switch(what, on, on)
    assert on.running("llama-chat") == AFTER


def test_arguments_are_checked_before_anything_is_stopped() -> None:
    wrong = Ended(1, "", "error: invalid argument: --contxt\n")
    error = failure(
        on := host(ends={"--version": wrong}),
        given(on, arguments=(ArgumentCheck("/b/llama-server", ("--contxt",), "llama-chat"),)),
    )
    assert "does not accept its arguments" in error.message
    assert "error: invalid argument: --contxt" in on.log


@pytest.mark.parametrize("code", [TIMED_OUT, 126, 127, 137])
def test_an_engine_that_does_not_end_is_not_checked(code: int) -> None:
    on = host(ends={"--version": Ended(code, "loading the model\n")})
    error = failure(on, given(on, arguments=(ArgumentCheck("/b/llama-server", (), "llama-chat"),)))
    assert f"(exit code {code})" in error.message


def test_the_key_is_not_read_by_the_check() -> None:
    on = host()
    check = ArgumentCheck("/b/llama-server", ("--api-key-file", "/etc/llamaherd/keys/chat"), "llama-chat")
    run_switch(given(on, arguments=(check,)), on, on)
    assert any("--api-key-file /proc/version --version" in line for line in on.ran)


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ({"config -q": Ended(1, "", "no such key")}, "Compose does not take its file"),
        ({"image inspect": Ended(1), "pull": Ended(1)}, "its image cannot be fetched"),
        ({"docker run": Ended(1, "", "error: unknown argument --x")}, "does not accept its arguments"),
    ],
)
def test_a_container_is_checked_before_anything_is_stopped(ends: dict[str, Ended], why: str) -> None:
    on = host(ends=ends)
    assert why in failure(on, given(on, container=CHECK)).message
    assert not on.names("/run/llamaherd")


def test_an_image_that_is_made_here_is_not_fetched() -> None:
    on = host(ends={"image inspect": Ended(1)})
    error = failure(on, given(on, container=replace(CHECK, pulled=False)))
    assert "its image image:1 is not there" in error.message
    assert not any("docker pull" in line for line in on.ran)


def test_an_image_without_a_gpu_may_say_nothing_of_arguments() -> None:
    on = host(ends={"docker run": Ended(1, "", "no CUDA device")})
    run_switch(given(on, container=CHECK), on, on)
    assert on.running("llama-chat") == AFTER


@pytest.mark.parametrize("need", [{"needs_gpus": (NeededGpu("card", "0", 9),), "needs_ram": 0}, {"needs_ram": 9}])
def test_memory_is_checked_before_anything_is_stopped(need: Mapping[str, Any]) -> None:
    on = host(lacks="GPU card has 1.0 GB for it, and it takes 9.0 GB")
    assert "is left as it is: GPU card has 1.0 GB" in failure(on, given(on, leaving=("llama-x",), **need)).message


def test_what_another_run_has_changed_is_left_alone() -> None:
    on = host()
    error = failure(on, given(on, unchanged={UNIT: "0" * 64}))
    assert "another run has changed llama-chat" in error.message


def test_an_account_that_cannot_be_made_is_reported() -> None:
    on = host(ends={"id -u": Ended(1), "useradd": Ended(1)})
    assert "cannot create the account llama-chat" in failure(on, given(on)).message


@pytest.mark.parametrize("when", ["kept", "not kept"])
def test_a_full_disk_stops_nothing(when: str) -> None:
    on = host(full=True)
    if when == "not kept":
        on.links.pop(f"{KEPT}/last")
    what = given(on)
    error = failure(on, what)
    assert "No space left on device" in error.message
    assert error.fix


def test_a_version_of_an_earlier_herd_is_kept_first() -> None:
    on = host()
    on.links.clear()
    on.files = {path: file for path, file in on.files.items() if not path.startswith(KEPT)}
    on.fates[AFTER] = "does not load"
    assert "serves again as before" in one_run(on, NEW, "chat")
    assert on.running("llama-chat") == BEFORE


def test_a_running_version_without_its_file_is_not_kept() -> None:
    on = host()
    on.links.clear()
    on.files[UNIT] = File("# another text")
    on.fates[AFTER] = "does not load"
    why = one_run(on, NEW, "chat")
    assert "is not healthy after" in why
    assert on.running("llama-chat") == ""


def test_a_drop_in_is_moved_away_and_not_lost() -> None:
    on = host()
    drop_in = "/etc/systemd/system/llama-chat.service.d/mine.conf"
    on.files[drop_in] = File("[Service]\nNice=5\n")
    run_switch(given(on, foreign=(drop_in, "/etc/systemd/system/gone.conf")), on, on)
    assert drop_in not in on.files
    assert [file.text for path, file in on.files.items() if "set-aside" in path] == ["[Service]\nNice=5\n"]
    assert any("is not declared; it is in" in line for line in on.log)


def test_a_drop_in_of_another_file_system_is_moved_too() -> None:
    """`systemctl edit --runtime` writes below /run, from where nothing can be renamed to a disk."""
    on = host()
    on.files["/run/systemd/system/llama-chat.service.d/mine.conf"] = File("[Service]\nNice=5\n")
    none = "/etc/systemd/system/llama-chat.service.d/none.conf"
    on.links[none] = "/dev/null"
    run_switch(given(on, foreign=("/run/systemd/system/llama-chat.service.d/mine.conf", none)), on, on)
    assert [target for path, target in on.links.items() if "set-aside" in path] == ["/dev/null"]
    assert not on.names("/run/systemd/system/llama-chat.service.d")


def test_a_key_is_restored_for_the_account_as_it_is_now() -> None:
    """An account that was removed and made anew may have another number: the kept copy belongs to the one before."""
    on = host()
    on.files[f"{KEPT}/{on.target(f'{KEPT}/last')}/key"] = File("the key before", 0o400, "4711")
    on.fates[AFTER] = "does not load"
    assert "serves again as before" in one_run(on, NEW, "chat")
    key = on.files["/etc/llamaherd/keys/chat"]
    assert (key.text, key.mode, key.owner) == ("the key before", 0o400, "llama-chat")


def test_a_fault_of_the_program_is_rolled_back() -> None:
    on = Faulty(**vars(copied(SERVING)))
    why = one_run(on, NEW, "chat")
    assert "serves again as before" in why
    assert on.running("llama-chat") == BEFORE
    assert any("KeyError" in line for line in on.log)


class Faulty(PlayedHost):
    """A host on which the proof of a new version has a fault."""

    def prove(self, given: ProofInput, system: object) -> Proof:
        if given.how == "judge":
            raise KeyError("models")
        return super().prove(given, system)


def test_one_that_serves_otherwise_stays_where_nothing_is_to_be_restored() -> None:
    """It is the version that was kept last, and another server that is not declared any more runs beside it."""
    on = Undeclared(**vars(copied(SERVING)))
    on.units["llama-chat"].state = "failed"
    on.units["llama-gone"] = Running("active", "0", 7)
    gone = [UndeclaredServer("gone", unit=True, container=False, port=False, serves=True)]
    assert one_run(on, OLD, "chat", going=gone) == ""
    assert on.running("llama-chat") == BEFORE


class Undeclared(PlayedHost):
    """A host whose servers are slower than declared."""

    def prove(self, given: ProofInput, system: object) -> Proof:
        del given, system
        return Proof("undeclared", "it decodes 1.0 tokens/s, and `expect` allows no less than 5")


@pytest.mark.parametrize(
    ("words", "printed", "fix"),
    [
        ("--no-reload enable", "", "see `systemctl status llama-chat.service`"),
        ("daemon-reload", "not enough space available on /run/systemd/", ""),
    ],
)
def test_a_unit_that_systemd_does_not_load_stops_nothing(words: str, printed: str, fix: str) -> None:
    """systemd refuses to reload where /run has less than 16 MiB free, and its own words are the reason."""
    on = host(ends={words: Ended(1, err=printed)})
    failed = failure(on, given(on))
    assert failed.message.endswith("systemd does not load llama-chat.service")
    assert failed.fix == fix
    assert not printed or printed in on.log


def test_one_that_hangs_is_killed_and_not_drained() -> None:
    on = host()
    run_switch(given(on, hangs="it has not answered for 60 s"), on, on)
    assert "systemctl kill --kill-who=main -s KILL llama-chat.service" in on.ran
    assert on.running("llama-chat") == AFTER


def test_one_that_another_run_has_started_is_left_alone() -> None:
    on = host()
    what = given(on)
    other = decided(on, NEW, "chat")
    assert other
    run_switch(other, on, on)
    run = on.units["llama-chat"].run
    run_switch(replace(what, unchanged={}), on, on)
    assert on.units["llama-chat"].run == run
    assert "llama-chat.service matches the plan: another run started it meanwhile" in on.log


def test_one_that_is_not_on_its_gpus_goes_back() -> None:
    old, new = two_plans("drafter")
    on = Scripted(**vars(copied(serving_host(old, "drafter"))))
    on.ends["gpu-check"] = Ended(1, "", "the server is on no card\n")
    what = decided(on, new, "drafter")
    assert what
    with pytest.raises(FailedError, match="serves again as before"):
        run_switch(replace(what, gpus=("0",)), on, on)
    assert "the server is on no card" in on.log
    assert on.running("llama-drafter") == instance_of(old, "drafter").spec


def test_a_paused_container_goes_on() -> None:
    old, _ = two_plans("drafter")
    on = Scripted(**vars(copied(serving_host(old, "drafter"))))
    on.containers["llama-drafter"].state = "paused"
    what = decided(on, old, "drafter")
    assert what
    assert (what.paused, what.restart) == (True, False)
    on.ends["unpause"] = Ended(0)
    run_switch(what, on, on)
    assert "docker unpause llama-drafter" in on.ran
    assert "docker kill llama-drafter" not in on.ran


def test_where_the_old_version_does_not_start_either_both_are_reported() -> None:
    on = host()
    on.fates |= {AFTER: "does not load", BEFORE: "does not load"}
    why = one_run(on, NEW, "chat")
    assert "was rolled back to the previous version" in why
    assert "does not come up either: it does not start" in why


def test_an_old_version_that_no_longer_proves_itself_is_reported() -> None:
    on = host()
    on.fates |= {AFTER: "does not load", BEFORE: "does not answer"}
    assert "does not come up either: it does not answer a prompt" in one_run(on, NEW, "chat")


def test_a_host_that_became_slow_is_not_the_servers_fault() -> None:
    on = host(has_become_slow=True)
    on.fates[AFTER] = "is too slow"
    assert "serves again as before" in one_run(on, NEW, "chat")
    assert not on.entry("/var/lib/llamaherd/refused/llama-chat")
    assert on.read(f"{KEPT}/last/speeds") == "[slow]"


def test_a_change_of_the_key_alone_refuses_nothing() -> None:
    on = host()
    on.files["/etc/llamaherd/keys/chat"] = File("another key", 0o400, "llama-chat")
    on.files[f"{KEPT}/{on.target(f'{KEPT}/last')}/key"] = File("the key before", 0o400, "llama-chat")
    on.fates[BEFORE] = "does not answer"
    assert "does not come up either" in one_run(on, OLD, "chat")
    assert not on.entry("/var/lib/llamaherd/refused/llama-chat")


@pytest.mark.parametrize(("unit", "container"), [(True, False), (False, True)])
def test_a_server_is_removed_with_all_that_is_its_own(unit: bool, container: bool) -> None:
    name = "chat" if unit else "drafter"
    on = copied(serving_host(OLD, name))
    what = RemovalInput(name, f"llama-{name}", f"llama-{name}", unit, container, True, 30)
    for _ in range(2):
        run_removal(what, on, on)
    assert not [each for each in (*on.files, *on.links) if name in each]
    assert on.running(f"llama-{name}") == ""
    assert f"llama-{name}" not in on.accounts or not unit


def test_a_server_whose_account_is_in_use_is_removed_by_the_next_run() -> None:
    on = host(ends={"userdel": Ended(8)})
    what = RemovalInput("chat", "llama-chat", "llama-chat", True, False, True, 30)
    with pytest.raises(FailedError, match="something still runs as it"):
        run_removal(what, on, on)
    assert UNIT in on.files
    on.ends.clear()
    run_removal(what, on, on)
    assert UNIT not in on.files


def test_a_key_and_a_refusal() -> None:
    on = host()
    remove_key(KeyRemovalInput("chat"), on)
    assert "/etc/llamaherd/keys/chat" not in on.files
    refuse(RefusalInput("llama-chat", "try", "it is\tslower"), on)
    assert (on.read("/var/lib/llamaherd/refused/llama-chat") or "").split("\t")[2] == "it is slower\n"


def test_a_switch_that_is_done_changes_nothing_more() -> None:
    on = host()
    assert one_run(on, NEW, "chat") == ""
    assert settled(on, NEW, "chat") == ""
    assert on.running("llama-chat") == AFTER


def test_what_failed_is_sent_with_the_engines_own_reason() -> None:
    """For the screen: why, the line of the log, whether anything serves, and how long nothing did."""
    on = host()
    on.fates[AFTER] = "does not load"
    why = one_run(on, NEW, "chat")
    failed = on.values[-1]
    assert isinstance(failed, FailedSwitch)
    assert (failed.service, failed.serves) == ("llama-chat", True)
    assert failed.reason == "the engine reports: out of memory"
    assert failed.why.endswith(f" of 300: {failed.reason}")
    assert failed.reason in why
    assert failed.downtime is not None
    assert failed.downtime > 0


def started(on: PlayedHost) -> StartedServer:
    """Return what a switch has sent of the server that it started."""
    found = on.values[-1]
    assert isinstance(found, StartedServer)
    return found


def test_the_measured_downtime_of_a_restart_is_sent() -> None:
    on = host()
    assert one_run(on, NEW, "chat") == ""
    assert started(on).downtime is not None


def test_a_server_that_did_not_run_was_not_down() -> None:
    on = host()
    on.units["llama-chat"].state = "inactive"
    assert one_run(on, NEW, "chat") == ""
    assert started(on).downtime is None


def test_of_what_was_never_stopped_no_downtime_is_sent() -> None:
    wrong = Ended(1, "", "error: invalid argument: --contxt\n")
    on = host(ends={"--version": wrong})
    failure(on, given(on, arguments=(ArgumentCheck("/b/llama-server", ("--contxt",), "llama-chat"),)))
    failed = on.values[-1]
    assert isinstance(failed, FailedSwitch)
    assert (failed.serves, failed.downtime, failed.reason) == (True, None, "error: invalid argument: --contxt")


def test_a_response_that_is_bad_is_a_reason_by_itself() -> None:
    on = host()
    on.fates[AFTER] = "does not answer"
    one_run(on, NEW, "chat")
    failed = on.values[-1]
    assert isinstance(failed, FailedSwitch)
    assert failed.why == "it does not answer a prompt"
