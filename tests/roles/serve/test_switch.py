"""How a server is brought back: restarted or started, with which files written, and what is checked first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState
from llamaherd.layout import GPU_CHECK, SET_ASIDE
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.plan import InstancePlan
from roles.serve.changes import server_changes
from roles.serve.onhost.switch import switch as run_switch
from roles.serve.state import declared_limits
from tests.support.drifts import (
    CHAT,
    CPU,
    DRAFTER,
    GPU,
    KEYS,
    Drift,
    changed,
    container,
    edit,
    lost,
    seen_of,
    serving,
    switch,
    together,
    unit,
)
from tests.support.drifts import host as drifted_host
from tests.support.played_host import File, PlayedHost, Running
from tests.support.recording import RecordingHost, recording, switch_of
from tests.support.rigs import WRITTEN
from tests.support.switches import serving_host

KEY_FILE = "/etc/llamaherd/keys/chat"

# What is seen of one instance, and how it is brought back: restarted or started, with which files written.
SWITCHES: dict[str, tuple[InstancePlan, Drift, str, tuple[str, ...]]] = {
    "unit: killed between file and restart": (CHAT, changed("llama-chat", CHAT.file.path), "restart", ()),
    "unit: started by an older version, which recorded nothing": (
        CHAT,
        changed("llama-chat", "/run/llamaherd/started/llama-chat"),
        "restart",
        (),
    ),
    "unit: its file has a time to come": (CHAT, lambda s: edit(s, CHAT.file.path, written=WRITTEN * 2), "", ()),
    "unit: its key has a time to come": (
        CHAT,
        lambda s: edit(s, "/etc/llamaherd/keys/chat", written=WRITTEN * 2),
        "",
        (),
    ),
    "unit: a process of an older spec": (CHAT, unit(spec="0ld"), "restart", ()),
    "unit: a process that says no spec": (CHAT, unit(spec=""), "restart", ()),
    "unit: stopped": (CHAT, unit(active="inactive", spec=""), "restart", ()),
    "unit: failed": (CHAT, unit(active="failed", spec=""), "restart", ()),
    "unit: still loading": (CHAT, unit(active="activating"), "start", ()),
    "unit: not enabled": (CHAT, unit(enabled="disabled"), "start", ()),
    "unit: not read again after it changed": (CHAT, unit(needs_reload=True), "start", ()),
    "unit: edited": (CHAT, lambda s: edit(s, CHAT.file.path, sha256="0"), "restart", (CHAT.file.path,)),
    "unit: writable by all": (CHAT, lambda s: edit(s, CHAT.file.path, mode="666"), "start", (CHAT.file.path,)),
    "unit: of another owner": (
        CHAT,
        lambda s: edit(s, CHAT.file.path, owner=("1000", "tom")),
        "start",
        (CHAT.file.path,),
    ),
    "unit: its file is gone": (
        CHAT,
        together(drifted_host(units={}), lost(CHAT.file.path)),
        "restart",
        (CHAT.file.path,),
    ),
    "unit: another key": (
        CHAT,
        lambda s: edit(s, "/etc/llamaherd/keys/chat", sha256="0"),
        "restart",
        ("/etc/llamaherd/keys/chat",),
    ),
    "unit: a key that others can read": (
        CHAT,
        lambda s: edit(s, "/etc/llamaherd/keys/chat", mode="444"),
        "start",
        ("/etc/llamaherd/keys/chat",),
    ),
    "unit: a key written after the start": (
        CHAT,
        changed("llama-chat", "/etc/llamaherd/keys/chat"),
        "restart",
        (),
    ),
    "unit: other arguments than its file has": (CHAT, serving("llama-chat", argv="0" * 64), "restart", ()),
    "unit: a drop-in that nobody has read": (CHAT, serving("llama-chat", foreign=("/a",)), "start", ()),
    "unit: started with a drop-in": (
        CHAT,
        serving("llama-chat", foreign=("/a",), changed=("/a",), argv="0" * 64),
        "restart",
        (),
    ),
    "unit: its program was replaced": (CHAT, serving("llama-chat", replaced="/opt/a"), "restart", ()),
    "unit: started with a variable that is gone": (
        CHAT,
        serving("llama-chat", variables="LLAMA_ARG_CTX_SIZE"),
        "restart",
        (),
    ),
    "container: started with another variable": (DRAFTER, serving("llama-drafter", variables="A"), "restart", ()),
    "unit: it has answered no prompt yet": (CHAT, serving("llama-chat", untried=(CHAT.spec,)), "start", ()),
    "unit: another than what runs has answered none": (CHAT, serving("llama-chat", untried=("0ld",)), "", ()),
    "container: it has answered no prompt yet": (
        DRAFTER,
        serving("llama-drafter", untried=(DRAFTER.spec,)),
        "start",
        (),
    ),
    "unit: hangs": (CHAT, serving("llama-chat", hangs="it is stopped"), "restart", ()),
    "container: hangs": (DRAFTER, serving("llama-drafter", hangs="it is stopped"), "restart", ()),
    "container: held to less by hand": (
        DRAFTER,
        container(limits={**declared_limits(DRAFTER.file.text), "NanoCpus": "500000000"}),
        "restart",
        (),
    ),
    "container: not started any more by Docker": (
        DRAFTER,
        container(limits={**declared_limits(DRAFTER.file.text), "RestartPolicy.Name": "no"}),
        "restart",
        (),
    ),
    "container: held to nothing any more": (DRAFTER, container(limits={}), "restart", ()),
    "unit: its process is another user": (CHAT, serving("llama-chat", user="0"), "restart", ()),
    "unit: its process is in the group of Docker": (CHAT, serving("llama-chat", groups="998"), "restart", ()),
    "container: paused": (DRAFTER, container(status="paused"), "start", ()),
    "container: exited": (DRAFTER, container(status="exited"), "start", ()),
    "container: still loading": (DRAFTER, container(health="starting"), "start", ()),
    "container: unhealthy, which no start heals": (DRAFTER, container(health="unhealthy"), "restart", ()),
    "container: gone": (DRAFTER, drifted_host(containers={}), "restart", ()),
    "container: of an older spec": (DRAFTER, container(spec="0ld"), "restart", ()),
    "container: killed between file and restart": (
        DRAFTER,
        changed("llama-drafter", "/var/lib/llamaherd/started/llama-drafter"),
        "restart",
        (),
    ),
    "container: its file has a time to come": (
        DRAFTER,
        lambda s: edit(s, DRAFTER.file.path, written=WRITTEN * 2),
        "",
        (),
    ),
    "container: project edited": (
        DRAFTER,
        lambda s: edit(s, DRAFTER.file.path, sha256="0"),
        "restart",
        (DRAFTER.file.path,),
    ),
    "container: project writable by all": (
        DRAFTER,
        lambda s: edit(s, DRAFTER.file.path, mode="666"),
        "start",
        (DRAFTER.file.path,),
    ),
    "container: project gone": (
        DRAFTER,
        together(drifted_host(projects=set()), lost(DRAFTER.file.path)),
        "restart",
        (DRAFTER.file.path,),
    ),
}


MODES = {CHAT.file.path: (0o644, "root"), DRAFTER.file.path: (0o644, "root"), KEY_FILE: (0o400, "llama-chat")}


@pytest.mark.parametrize("case", SWITCHES)
def test_how_an_instance_is_brought_back(case: str) -> None:
    instance, drift, how, written = SWITCHES[case]
    seen = seen_of(CPU, drift)
    assert bool(switch(instance, seen)) == bool(how)
    if not how:
        return
    (step,) = switch(instance, seen)
    given = switch_of(step)
    assert given.restart == (how == "restart")
    assert tuple(each.path for each in given.files) == written
    assert all((each.mode, each.owner) == MODES[each.path] for each in given.files)
    # What is not written must be as it was inspected.
    assert set(given.unchanged) == {instance.file.path, *([KEY_FILE] if instance is CHAT else [])} - set(written)
    # The engine reads new arguments before anything is written; it read old ones when they were new.
    assert bool(given.arguments) == (instance.file.path in written)
    assert bool(given.container) == (instance.backend == "compose" and instance.file.path in written)
    (other,) = [i for i in CPU.instances if i is not instance]
    assert switch(other, seen) == []


@pytest.mark.parametrize(
    ("instance", "drift", "starts", "stops"),
    [
        (CHAT, unit(enabled="disabled"), ("systemctl", "start", "llama-chat.service"), ()),
        (
            CHAT,
            changed("llama-chat", "/a"),
            ("systemctl", "restart", "llama-chat.service"),
            ("systemctl", "stop", "llama-chat.service"),
        ),
        (DRAFTER, container(status="exited"), ("docker", "compose", "up"), ()),
        (
            DRAFTER,
            container(health="unhealthy"),
            ("docker", "compose", "up", "--force-recreate"),
            ("docker", "stop", "llama-drafter"),
        ),
    ],
)
def test_a_restart_stops_the_server_and_a_start_does_not(
    instance: InstancePlan, drift: Drift, starts: tuple[str, ...], stops: tuple[str, ...]
) -> None:
    host = recording(serving_host(CPU, instance.name))
    (step,) = switch(instance, seen_of(CPU, drift))
    inspected = (host.units if instance is CHAT else host.containers)[instance.service]
    run_switch(replace(switch_of(step), run=str(inspected.run)), host, host)
    assert host.has_done(*starts)
    if stops:
        assert host.index(*stops) < host.index(*starts)
    else:
        assert not host.has_done("stop", instance.service)
        assert not host.has_done("stop", f"{instance.service}.service")
        assert not host.has_done("--force-recreate")
        assert not host.has_done("restart")


@pytest.mark.parametrize(
    ("drift", "again"),
    [
        (changed("llama-drafter", "/var/lib/llamaherd/started/llama-drafter"), True),
        (container(limits={}), False),
        (container(spec="0ld"), False),
        (serving("llama-drafter", hangs="it is stopped", changed=("/a",)), False),
        (lambda s: edit(s, DRAFTER.file.path, sha256="0"), False),
    ],
)
def test_a_container_that_another_run_has_just_made_is_asked_about_again(drift: Drift, again: bool) -> None:
    """What is only not recorded yet may be by the time that the lock is ours."""
    (step,) = switch(DRAFTER, seen_of(CPU, drift))
    assert (switch_of(step).run == "") == again


def test_a_variable_that_systemd_gives_to_all_is_for_people() -> None:
    """A start would bring it again."""
    drift = serving("llama-chat", variables="A LD_PRELOAD", given_to_all="LD_PRELOAD")
    with pytest.raises(UserError, match=r"systemctl unset-environment LD_PRELOAD"):
        switch(CHAT, seen_of(CPU, drift))


def test_a_drop_in_is_set_aside_before_systemd_reads_it() -> None:
    drop_in = "/etc/systemd/system/llama-chat.service.d/it's mine.conf"
    (step,) = switch(CHAT, seen_of(CPU, serving("llama-chat", foreign=(drop_in,))))
    assert switch_of(step).foreign == (drop_in,)
    host = recording(serving_host(CPU, "chat"))
    host.files[drop_in] = File("[Service]\nNice=1\n")
    run_switch(switch_of(step), host, host)
    assert host.index("remove", drop_in) < host.index("systemctl", "daemon-reload")
    assert drop_in not in host.files
    (kept,) = [path for path in host.files if path.startswith(f"{SET_ASIDE}/")]
    assert host.files[kept].text == "[Service]\nNice=1\n"


def test_a_drop_in_for_other_units_too_is_left_and_stops_this_one() -> None:
    shared = {"/etc/systemd/system/service.d/all.conf": "ExecStart User"}
    with pytest.raises(UserError) as error:
        switch(CHAT, seen_of(CPU, serving("llama-chat", shared=shared)))
    assert str(error.value).startswith(
        "/etc/systemd/system/service.d/all.conf sets ExecStart, User for llama-chat.service"
    )
    assert "move it away" in error.value.help
    assert switch(DRAFTER, seen_of(CPU, serving("llama-chat", shared=shared))) == []


def test_a_unit_of_another_program_with_the_same_name_is_left_and_stops_this_one() -> None:
    path = "/etc/systemd/system/llama-chat.service"
    with pytest.raises(UserError) as error:
        switch(CHAT, seen_of(CPU, serving("llama-chat", other_unit=path)))
    assert error.value.message == f"llama-chat is left as it is: {path} exists, and `herd` did not write it"
    assert f"systemctl disable --now llama-chat.service && mv {path} {path}.old" in error.value.help


@pytest.mark.parametrize("instance", CPU.instances, ids=[each.name for each in CPU.instances])
def test_arguments_are_checked_before_the_file_is_switched(instance: InstancePlan) -> None:
    (step,) = switch(instance, HostState())
    host = recording(PlayedHost({}))
    run_switch(switch_of(step), host, host)
    started = ("restart", f"{instance.service}.service") if instance is CHAT else ("compose", "up")
    assert host.index("setpriv", "--version") < host.index("write", instance.file.path)
    assert host.index("write", instance.file.path) < host.index(*started)


def small_that_serves(**ends: Ended) -> RecordingHost:
    """Return a host on which the container `small` serves, and is replaced."""
    ends["docker image inspect"] = Ended(1)
    host = recording(PlayedHost({}))
    host.containers["llama-small"] = Running("running", "0ld", 7)
    host.ends = {f"{GPU_CHECK} ": Ended(0), **ends}
    return host


SMALL = next(instance for instance in GPU.instances if instance.name == "small")


def test_an_image_that_was_not_built_here_is_run_in_a_container_before_the_old_one_stops() -> None:
    (step,) = switch(SMALL, HostState())
    host = small_that_serves()
    run_switch(switch_of(step), host, host)
    checked, stops = host.index("docker", "run", "--version"), host.index("docker", "stop", "llama-small")
    assert host.index("docker", "pull") < checked < stops
    assert {"--network", "none", "--read-only", "--cap-drop", "ALL"} <= set(host.done[checked])


def test_an_image_that_does_not_accept_its_arguments_leaves_the_old_server() -> None:
    (step,) = switch(SMALL, HostState())
    host = small_that_serves(**{"docker run": Ended(1, "", "error: invalid argument: --no-such\n")})
    with pytest.raises(FailedError, match="does not accept its arguments; the instance was left as it was"):
        run_switch(switch_of(step), host, host)
    assert "error: invalid argument: --no-such" in host.log
    assert host.containers["llama-small"] == Running("running", "0ld", 7)
    assert SMALL.file.path not in host.files


@pytest.mark.parametrize("name", ["chat", "drafter"])
def test_a_model_that_came_again_is_loaded_again(name: str) -> None:
    (instance,) = (each for each in CPU.instances if each.name == name)
    seen = seen_of(CPU, changed(instance.service, instance.model_path))
    assert server_changes(instance, seen, KEYS.get(name))
