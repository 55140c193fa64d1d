"""What is to be done to a host, from state alone: nothing where it is as planned, and the right thing wherever not."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.limits import declared_limits
from llamaherd.host.serving import ContainerState, ServingState, UnitState
from llamaherd.host.state import FolderState, Holder, HostState, UserState
from llamaherd.layout import container_user
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Change, DeferredScript, RunScript, Say, SendFile
from roles.base.changes import base_changes, package_changes
from roles.engines.changes import build_changes
from roles.models.changes import ModelSource, begin_changes, fetch_job, model_changes, to_fetch
from roles.serve.changes import project_changes, unit_changes
from roles.serve.images import image_changes
from roles.serve.removal import removal_changes
from tests.support.ours import parse_state, refusals, sends
from tests.support.rigs import KEY, RUN, SHA, WRITTEN, converged, cpu_rig, gpu_rig, planned

KEYS = {"chat": KEY, "drafter": KEY}
CPU = planned(cpu_rig())
GPU = planned(gpu_rig())
KEYED = planned(cpu_rig(), {"instances/drafter/api_key": {"env": "K"}})
CHAT, DRAFTER = CPU.instances
WATCHER = "0123456789abcdef"
Drift = Callable[[HostState], object]


def nowhere(_plan: Plan, _wanted: Sequence[str], _say: Say) -> list[ModelSource]:
    """No hub and no neighbour."""
    return []


def seen_of(plan: Plan, drift: Drift | None = None) -> HostState:
    """A host that is as planned, but for this drift."""
    seen = parse_state(converged(plan, KEYS))
    if drift:
        drift(seen)
    return seen


def together(*drifts: Drift) -> Drift:
    """Several drifts, one after the other."""

    def all_of_them(seen: HostState) -> None:
        for drift in drifts:
            drift(seen)

    return all_of_them


def host(**values: Any) -> Drift:
    """The host itself is otherwise."""

    def drift(seen: HostState) -> None:
        for name, value in values.items():
            setattr(seen, name, value)

    return drift


def steps_of(plan: Plan, seen: HostState) -> dict[str, int]:
    """How many steps each role would take, where it takes any."""
    steps: dict[str, int] = {
        "packages": len(package_changes(plan, seen)),
        "base": len(base_changes(plan, seen)),
        "removals": len(removal_changes(plan, seen)),
    }
    steps |= {build.engine: len(build_changes(build, seen)) for build in plan.builds}
    steps |= {"begin": len(begin_changes(plan, seen, nowhere, WATCHER))}
    steps |= {"models": len(model_changes(plan, seen, nowhere, WATCHER))}
    steps |= {f"image {n}": len(image_changes(image, seen)) for n, image in enumerate(plan.images)}
    steps |= {instance.name: len(switch(instance, seen)) for instance in plan.instances}
    return {role: count for role, count in steps.items() if count}


def switch(instance: InstancePlan, seen: HostState, key: str = KEY) -> list[Change]:
    """What is done to one instance."""
    return (unit_changes if instance.backend == "systemd" else project_changes)(
        instance, seen, key if instance.endpoint.key else None
    )


@pytest.mark.parametrize("plan", [CPU, GPU, KEYED], ids=["cpu", "gpu", "keyed"])
def test_nothing_is_done_to_a_host_that_is_as_planned(plan: Plan) -> None:
    assert steps_of(plan, seen_of(plan)) == {}
    assert refusals(plan, seen_of(plan), {}) == []
    assert sends(plan, seen_of(plan)) == []


@pytest.mark.parametrize(
    ("plan", "steps"),
    [
        (CPU, {"packages": 1, "base": 3, "main": 3, "models": 3, "image 0": 1, "chat": 1, "drafter": 1}),
        (
            GPU,
            {"packages": 1, "base": 3, "main": 1, "ik": 1, "begin": 1, "models": 3, "image 0": 1}
            | {"boxed": 1, "reasoner": 1, "small": 1, "worker": 1},
        ),
    ],
    ids=["cpu", "gpu"],
)
def test_all_is_done_to_a_virgin_host(plan: Plan, steps: dict[str, int]) -> None:
    assert steps_of(plan, HostState()) == steps


def folder(path: str, mode: int, owner: str) -> Drift:
    """A folder of ours is otherwise."""
    return lambda seen: seen.folders.update({path: FolderState(mode, owner)})


# What is seen otherwise than planned, and the roles that act on it, each with as many steps.
DRIFTS: dict[str, tuple[Drift, dict[str, int]]] = {
    "a package is gone": (lambda s: s.packages.discard("cmake"), {"packages": 1}),
    "an account is gone": (lambda s: s.users.pop("llama"), {"base": 1}),
    "an account is in the group of Docker": (
        lambda s: s.users.update({"llama-chat": UserState("/usr/sbin/nologin", ("llama-chat", "docker"))}),
        {"base": 1},
    ),
    "an account's own group is another": (
        lambda s: s.users.update({"llama-chat": UserState("/usr/sbin/nologin", ("sudo",))}),
        {"base": 1},
    ),
    "an account can log in": (
        lambda s: s.users.update({"llama-build": UserState("/bin/bash", ("llama-build",))}),
        {"base": 1},
    ),
    "an account takes a password": (lambda s: s.passwords.add("llama-chat"), {"base": 1}),
    "an account of a person's takes a password": (
        together(lambda s: s.users.update({"llama": UserState("", ())}), lambda s: s.passwords.add("llama")),
        {},
    ),
    "an account of ours is a person's": (lambda s: s.users.update({"llama": UserState("", ())}), {}),
    "the folders are gone": (lambda s: s.folders.clear(), {"base": 1}),
    "all may write to the folder of keys": (folder("/etc/llamaherd/keys", 0o777, "root"), {"base": 1}),
    "all may see which keys there are": (folder("/etc/llamaherd/keys", 0o755, "root"), {"base": 1}),
    "nobody may pass the folder above keys": (folder("/etc/llamaherd", 0o700, "root"), {"base": 1}),
    "programs lie in a folder of somebody else's": (folder("/opt/llamaherd/libexec", 0o755, "tom"), {"base": 1}),
    "a model may be read by root alone": (lambda s: s.closed.append(CPU.models[0].path), {"base": 1}),
    "a build was touched": (lambda s: s.builds.update({CPU.builds[0].id: "intact"}), {"main": 1}),
    "a program was replaced, its source is there": (
        lambda s: s.builds.update({CPU.builds[0].id: "damaged"}),
        {"main": 1},
    ),
    "a program was replaced, its source is gone": (
        together(lambda s: s.builds.update({CPU.builds[0].id: "damaged"}), lambda s: s.sources.clear()),
        {"main": 3},
    ),
    "a shared file was edited": (lambda s: edit(s, "/opt/llamaherd/libexec/wait-healthy", sha256="0"), {"base": 1}),
    "a shared file lost its mode": (lambda s: edit(s, "/opt/llamaherd/libexec/wait-healthy", mode="644"), {"base": 1}),
    "a program was edited": (host(fetcher="0"), {"base": 1}),
    "a build is gone, its source is there": (lambda s: s.builds.clear(), {"main": 1}),
    "a build and its source are gone": (together(lambda s: s.builds.clear(), lambda s: s.sources.clear()), {"main": 3}),
    "a build runs": (lambda s: s.builds.update({CPU.builds[0].id: "building"}), {"main": 1}),
    "a build has ended, not let in yet": (lambda s: s.builds.update({CPU.builds[0].id: "built"}), {"main": 1}),
    "a source that a build no longer needs": (lambda s: s.sources.clear(), {}),
    "a model was cut": (lambda s: s.stored[CPU.models[0].folder].update({"gemma.gguf": (7, WRITTEN)}), {"models": 2}),
    "a model is gone": (lambda s: s.stored[CPU.models[0].folder].clear(), {"models": 2}),
    "a model was written to": (
        lambda s: s.stored[CPU.models[1].folder].update({"moe.gguf": (253113024, WRITTEN + 1)}),
        {"models": 2},
    ),
    "a model was verified as another": (
        lambda s: s.verified[CPU.models[1].folder].update({"moe.gguf": (253113024, WRITTEN, SHA)}),
        {"models": 2},
    ),
    "a model was never verified": (lambda s: s.verified.clear(), {"models": 3}),
    "an image is gone": (lambda s: s.images.clear(), {"image 0": 1}),
    "somebody else's image": (lambda s: s.images.add("llamaherd/engine:other"), {}),
    "a unit that was removed from the inventory": (
        lambda s: s.units.update({"llama-old": UnitState("active", "enabled", False, RUN, "0")}),
        {"removals": 1},
    ),
    "a project that was removed from the inventory": (lambda s: s.projects.add("old"), {"removals": 1}),
    "a container whose project was deleted by hand": (
        lambda s: s.containers.update({"llama-old": ContainerState("running", "healthy", RUN, "0")}),
        {"removals": 1},
    ),
}


def edit(seen: HostState, path: str, **values: Any) -> None:
    seen.files[path] = replace(seen.files[path], **values)


@pytest.mark.parametrize("case", DRIFTS)
def test_what_is_done_about_a_drift(case: str) -> None:
    drift, steps = DRIFTS[case]
    assert steps_of(CPU, seen_of(CPU, drift)) == steps


def unit(**values: Any) -> Drift:
    return lambda seen: seen.units.update({"llama-chat": replace(seen.units["llama-chat"], **values)})


def container(**values: Any) -> Drift:
    return lambda seen: seen.containers.update({"llama-drafter": replace(seen.containers["llama-drafter"], **values)})


def changed(service: str, path: str) -> Drift:
    """What a server was started with is something else by now."""
    return lambda seen: seen.serving.setdefault(service, ServingState()).changed.append(path)


def serving(service: str, **values: Any) -> Drift:
    """A server is otherwise."""
    return lambda seen: seen.serving.update({service: ServingState(**values)})


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
        together(lambda s: s.units.clear(), lambda s: s.files.pop(CHAT.file.path)),
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
    "unit: a drop-in that nobody has read": (CHAT, serving("llama-chat", foreign=["/a"]), "start", ()),
    "unit: started with a drop-in": (
        CHAT,
        serving("llama-chat", foreign=["/a"], changed=["/a"], argv="0" * 64),
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
    "unit: it has answered no prompt yet": (CHAT, serving("llama-chat", untried=[CHAT.spec]), "start", ()),
    "unit: another than what runs has answered none": (CHAT, serving("llama-chat", untried=["0ld"]), "", ()),
    "container: it has answered no prompt yet": (
        DRAFTER,
        serving("llama-drafter", untried=[DRAFTER.spec]),
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
    "container: gone": (DRAFTER, lambda s: s.containers.clear(), "restart", ()),
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
        together(lambda s: s.projects.clear(), lambda s: s.files.pop(DRAFTER.file.path)),
        "restart",
        (DRAFTER.file.path,),
    ),
}


STARTS = {
    ("systemd", "start"): "if ! systemctl start llama-chat.service",
    ("systemd", "restart"): "if ! systemctl restart llama-chat.service",
    ("compose", "start"): "compose.yaml up -d --remove-orphans",
    ("compose", "restart"): "compose.yaml up -d --force-recreate --remove-orphans",
}


@pytest.mark.parametrize("case", SWITCHES)
def test_how_an_instance_is_brought_back(case: str) -> None:
    instance, drift, how, written = SWITCHES[case]
    seen = seen_of(CPU, drift)
    assert bool(switch(instance, seen)) == bool(how)
    if not how:
        return
    (step,) = switch(instance, seen)
    assert STARTS[instance.backend, how] in step.script
    assert STARTS[instance.backend, "start" if how == "restart" else "restart"] not in step.script
    paths = (CHAT.file.path, DRAFTER.file.path, "/etc/llamaherd/keys/chat")
    assert tuple(path for path in paths if f"put_file {path} " in step.script) == written
    # New arguments are put to the engine before anything is written; old ones were, when they were new.
    assert ("--version" in step.script) == (instance.file.path in written)
    (other,) = [i for i in CPU.instances if i is not instance]
    assert switch(other, seen) == []


@pytest.mark.parametrize(
    ("drift", "again"),
    [
        (changed("llama-drafter", "/var/lib/llamaherd/started/llama-drafter"), True),
        (container(limits={}), False),
        (container(spec="0ld"), False),
        (serving("llama-drafter", hangs="it is stopped", changed=["/a"]), False),
        (lambda s: edit(s, DRAFTER.file.path, sha256="0"), False),
    ],
)
def test_a_container_that_another_run_has_just_made_is_asked_about_again(drift: Drift, again: bool) -> None:
    """What is only not recorded yet may be by the time that the lock is ours."""
    (step,) = switch(DRAFTER, seen_of(CPU, drift))
    assert ("\"${now%% *}\" != '' ]" in step.script) == again


def test_a_variable_that_systemd_gives_to_all_is_for_people() -> None:
    """A start would bring it again."""
    drift = serving("llama-chat", variables="A LD_PRELOAD", given_to_all="LD_PRELOAD")
    with pytest.raises(UserError, match=r"systemctl unset-environment LD_PRELOAD"):
        switch(CHAT, seen_of(CPU, drift))


def test_a_drop_in_is_set_aside_before_systemd_reads_it() -> None:
    drop_in = "/etc/systemd/system/llama-chat.service.d/it's mine.conf"
    (step,) = switch(CHAT, seen_of(CPU, serving("llama-chat", foreign=[drop_in])))
    moved, reloaded = step.script.index("mv -fT"), step.script.index("systemctl daemon-reload")
    assert moved < reloaded
    assert shlex.quote(drop_in) in step.script


def test_a_drop_in_for_other_units_too_is_left_and_stops_this_one() -> None:
    shared = {"/etc/systemd/system/service.d/all.conf": "ExecStart User"}
    with pytest.raises(UserError) as error:
        switch(CHAT, seen_of(CPU, serving("llama-chat", shared=shared)))
    assert str(error.value).startswith(
        "/etc/systemd/system/service.d/all.conf sets ExecStart, User for llama-chat.service"
    )
    assert "move it away" in error.value.help
    assert switch(DRAFTER, seen_of(CPU, serving("llama-chat", shared=shared))) == []


def test_arguments_are_asked_about_before_the_file_is_switched() -> None:
    for instance in CPU.instances:
        (step,) = switch(instance, HostState())
        checked, put, started = (
            step.script.index(mark) for mark in ("--version", "mv -f", f'echo "starting {instance.service}')
        )
        assert checked < put < started


def test_an_image_that_was_not_built_here_is_asked_in_a_container_before_the_old_one_stops() -> None:
    small = next(instance for instance in GPU.instances if instance.name == "small")
    (step,) = switch(small, HostState())
    asked, stops = step.script.index(" --version >"), step.script.index("docker stop llama-small")
    assert step.script.index("docker pull -q ") < step.script.index("docker run --rm ") < asked < stops


@pytest.mark.parametrize(
    ("name", "backend", "stops", "forgets", "reason"),
    [
        (
            "chat",
            "compose",
            "systemctl stop llama-chat.service",
            "rm -f /etc/systemd/system/llama-chat.service",
            "it runs as a unit until now",
        ),
        (
            "drafter",
            "systemd",
            "docker stop llama-drafter",
            "rm -rf /etc/llamaherd/compose/drafter",
            "it runs in a container until now",
        ),
    ],
)
def test_one_that_moves_is_kept_until_it_serves_where_it_goes(
    name: str, backend: str, stops: str, forgets: str, reason: str
) -> None:
    moved = planned(cpu_rig(), {f"instances/{name}/backend": backend})
    seen = seen_of(CPU)
    assert removal_changes(moved, seen) == []
    (step,) = switch(next(i for i in moved.instances if i.name == name), seen)
    assert (step.action, step.reasons[0]) == ("restart", reason)
    assert step.script.index(stops) < step.script.rindex('proved "$asked"') < step.script.rindex(forgets)
    assert refusals(moved, seen, {}) == []


def test_what_is_left_where_one_was_goes_once_it_serves_where_it_is() -> None:
    """A run that was killed may have left it."""
    seen = seen_of(CPU)
    seen.projects.add("chat")
    (removal,) = removal_changes(CPU, seen)
    assert "docker rm -f llama-chat" in removal.script
    assert "/etc/llamaherd/keys/chat" not in removal.script


def test_what_is_left_where_one_was_stays_until_it_has_answered_where_it_is() -> None:
    """It may be all that there is to go back to."""
    seen = seen_of(CPU)
    seen.projects.add("chat")
    seen.serving["llama-chat"] = ServingState(untried=[CHAT.spec])
    assert removal_changes(CPU, seen) == []
    (step,) = switch(CHAT, seen)
    assert (step.action, step.reasons) == ("start", ("it has not answered a prompt yet",))
    assert step.script.rindex('proved "$asked"') < step.script.rindex("docker rm -f llama-chat")


def test_a_key_goes_with_its_instance() -> None:
    declared = cpu_rig()
    del declared["instances"]["chat"]
    (removal,) = removal_changes(planned(declared), seen_of(CPU))
    assert "/etc/llamaherd/keys/chat" in removal.script


def test_a_source_or_model_from_the_controller_is_sent_first() -> None:
    build, admit, run = build_changes(CPU.builds[0], HostState())
    assert isinstance(build.how, SendFile)
    assert build.how.remote == f"/var/lib/llamaherd/incoming/{SHA}"
    assert isinstance(admit.how, RunScript)
    assert SHA in admit.script
    assert isinstance(run.how, RunScript)
    assert CPU.builds[0].id in run.says
    assert [send.sha256 for send in sends(CPU, HostState())] == [SHA, "a5" * 32, "04" * 32]
    assert [send.sha256 for send in sends(GPU, HostState())] == ["a5" * 32]


def test_no_more_than_the_missing_shard_is_counted() -> None:
    model = next(model for model in GPU.models if model.name == "35b")
    second = model.files[1]

    def half(free: int) -> Drift:
        def drift(seen: HostState) -> None:
            seen.builds |= {build.id: "done" for build in GPU.builds}
            del seen.stored[model.folder][second.name]
            seen.incoming[f"{second.sha256}.part"] = 15 * 10**9
            seen.kept["/var/lib/llamaherd/models/old/one"] = 7 * 10**9
            free_on_disk(free)(seen)

        return drift

    assert refusals(GPU, seen_of(GPU, half(5 * 10**9)), {}) == []
    (problem,) = refusals(GPU, seen_of(GPU, half(5 * 10**9 - 1000)), {})
    assert problem.message == "/var/lib/llamaherd/models has 5.0 GB free, and up to 5.0 GB are needed"
    assert problem.help.startswith("`herd models prune duo` would free up to 7.0 GB; or free 1.0 kB there")


def test_what_has_arrived_is_let_in_and_not_fetched() -> None:
    model = next(model for model in GPU.models if model.name == "35b")

    def arrived(seen: HostState) -> None:
        seen.verified[model.folder].clear()
        seen.incoming |= {file.sha256: int(file.size or 0) for file in model.files}

    seen = seen_of(GPU, arrived)
    assert begin_changes(GPU, seen, nowhere, WATCHER) == []
    (admit,) = model_changes(GPU, seen, nowhere, WATCHER)
    assert isinstance(admit.how, RunScript)
    assert all(f"admit {file.name} {file.sha256}" in admit.script for file in model.files)


def test_a_fetch_that_runs_is_not_begun_again() -> None:
    seen = HostState()
    job = fetch_job(GPU, to_fetch(GPU, seen), [])
    seen.fetch = str(job["id"])
    (join,) = begin_changes(GPU, seen, nowhere, WATCHER)
    assert isinstance(join.how, RunScript)
    assert "systemd-run" not in join.script
    seen.fetch = "another"
    (begin,) = begin_changes(GPU, seen, nowhere, WATCHER)
    assert isinstance(begin.how, DeferredScript)
    assert "systemd-run" in begin.how.make(print).script


def test_a_fetch_stays_the_same_one_while_its_files_arrive() -> None:
    """Else the run that waits, or the next one, would take it for another's and end it."""
    begun = fetch_job(GPU, to_fetch(GPU, HostState()), [])
    (first, _) = (file for _, file in to_fetch(GPU, HostState()))
    seen = HostState(incoming={first.sha256: int(first.size or 0)}, fetch=str(begun["id"]))
    assert len(to_fetch(GPU, seen)) == 1
    assert fetch_job(GPU, to_fetch(GPU, seen), [])["id"] == begun["id"]
    (join,) = begin_changes(GPU, seen, nowhere, WATCHER)
    assert isinstance(join.how, RunScript)


def test_a_job_names_places_in_order_and_holds_no_secret() -> None:
    first, second = (file.sha256 for _, file in to_fetch(GPU, HostState()))
    places = [
        ModelSource("six", {first: f"http://six.lan:8970/{first}"}, "canary"),
        ModelSource("hub", {first: "https://hub.lan/1", second: "https://hub.lan/2"}),
    ]
    job = fetch_job(GPU, to_fetch(GPU, HostState()), places)
    files = cast("list[dict[str, Any]]", job["files"])
    assert [[source["name"] for source in file["sources"]] for file in files] == [["six", "hub"], ["hub"]]
    assert [source["secret"] for source in files[0]["sources"]] == ["six", "_"]
    assert "canary" not in json.dumps(job) + repr(places)


def free_on_disk(size: int, models: int | None = None) -> Drift:
    """What is free; `models` where they have a disk of their own."""

    def drift(seen: HostState) -> None:
        assert seen.free
        assert seen.store
        seen.free = ("/var/lib/llamaherd", size, seen.free[2])
        device = seen.store.device if models is None else "/dev/sdb1"
        seen.store = replace(seen.store, free=size if models is None else models, device=device)

    return drift


def store(**values: Any) -> Drift:
    """The store is otherwise."""

    def drift(seen: HostState) -> None:
        assert seen.store
        seen.store = replace(seen.store, **values)

    return drift


OBSTACLES: dict[str, tuple[Drift, list[str]]] = {
    "another system": (host(os="debian-12"), ["runs debian-12, the inventory says debian-13"]),
    "no systemd": (host(systemd=False), ["systemd does not run here"]),
    "nothing of it": (host(os="", systemd=False), ["this host runs", "systemd"]),
    "port taken, unit stopped": (unit(active="inactive"), ["port 8080 of instance `chat` is taken"]),
    "port taken, unit gone": (lambda s: s.units.clear(), ["port 8080"]),
    "port taken, container exited": (container(status="exited"), ["port 8081"]),
    "port taken by a program": (
        together(lambda s: s.units.clear(), lambda s: s.holders.update({8080: Holder(7, "nc", "")})),
        ["port 8080 of instance `chat` is taken by nc (process 7)"],
    ),
    "port taken by a container": (
        together(container(status="exited"), lambda s: s.holders.update({8081: Holder(7, "docker-proxy", "web")})),
        ["port 8081 of instance `drafter` is taken by container web"],
    ),
    "port ours, paused": (container(status="paused"), []),
    "port ours, made anew just now": (
        together(
            container(status="created"), lambda s: s.holders.update({8081: Holder(7, "docker-proxy", "llama-drafter")})
        ),
        [],
    ),
    "port ours, still loading": (unit(active="activating"), []),
    "port free, unit gone": (together(lambda s: s.units.clear(), lambda s: s.listening.discard(8080)), []),
    "disk full, nothing to do": (free_on_disk(0), []),
    "disk full, a build to do": (
        together(free_on_disk(10**9), lambda s: s.builds.clear()),
        ["/var/lib/llamaherd/models has 1.0 GB free, and up to 2.0 GB are needed"],
    ),
    "disk full, a build under way": (
        together(free_on_disk(0), lambda s: s.builds.update({CPU.builds[0].id: "building"})),
        [],
    ),
    "disk full, a model to send": (
        together(free_on_disk(10**8), lambda s: s.stored.clear()),
        ["/var/lib/llamaherd/models has 100 MB free, and up to 253 MB are needed"],
    ),
    "models have a disk of their own, full": (
        together(free_on_disk(10**12, models=10**8), lambda s: s.stored.clear()),
        ["/var/lib/llamaherd/models has 100 MB free, and up to 253 MB are needed"],
    ),
    "models have a disk of their own, the other is full": (
        together(free_on_disk(0, models=10**12), lambda s: s.stored.clear()),
        [],
    ),
    "a store on another machine": (
        together(store(kind="nfs4"), lambda s: s.stored.clear()),
        ["/var/lib/llamaherd/models is on another machine (nfs4)"],
    ),
    "a store that is read-only": (
        together(store(writable=False), lambda s: s.stored.clear()),
        ["/var/lib/llamaherd/models is on a filesystem that is mounted read-only"],
    ),
    "a store that is read-only and has all": (store(writable=False), []),
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_what_stands_in_the_way(case: str) -> None:
    drift, words = OBSTACLES[case]
    found = refusals(CPU, seen_of(CPU, drift), {"a5" * 32: 253 * 10**6})
    assert len(found) == len(words)
    for problem, part in zip(found, words, strict=True):
        assert part in problem.message
        assert problem.help in str(problem)


def test_a_renamed_instance_may_keep_its_port() -> None:
    declared = cpu_rig()
    declared["instances"]["talk"] = declared["instances"].pop("chat")
    assert refusals(planned(declared), seen_of(CPU), {}) == []


def test_the_key_is_on_stdin_alone() -> None:
    carried = base64.b64encode(f"{KEY}\n".encode()).decode()
    for instance in KEYED.instances:
        (step,) = switch(instance, HostState())
        assert carried in step.script
        for spelling in (KEY, carried):
            assert spelling not in step.says
            assert spelling not in repr(step)
            assert spelling not in repr(KEYED) + KEYED.model_dump_json()
        assert KEY not in step.script.replace(carried, "")


def test_a_key_belongs_to_who_reads_it() -> None:
    (chat,), (drafter,) = (switch(instance, HostState()) for instance in KEYED.instances)
    assert "put_file /etc/llamaherd/keys/chat /etc/llamaherd/keys 0400 llama-chat <<" in chat.script
    keyed = f"put_file /etc/llamaherd/keys/drafter /etc/llamaherd/keys 0400 {container_user('drafter')} <<"
    assert keyed in drafter.script


def test_a_host_where_all_servers_were_one_user_is_changed_once() -> None:
    before = seen_of(KEYED)
    del before.users["llama-chat"]
    for name, owner in (("chat", ("995", "llama")), ("drafter", ("65532", "UNKNOWN"))):
        path = f"/etc/llamaherd/keys/{name}"
        before.files[path] = replace(before.files[path], owner=owner)
    (accounts,) = base_changes(KEYED, before)
    assert "llama-chat" in accounts.script
    for instance in KEYED.instances:
        (step,) = switch(instance, before)
        assert f"put_file {instance.key_file} /etc/llamaherd/keys 0400 {instance.server.user} <<" in step.script
        assert switch(instance, seen_of(KEYED)) == []


def test_a_token_is_on_stdin_alone() -> None:
    def hub(_plan: Plan, wanted: Sequence[str], _say: Say) -> list[ModelSource]:
        return [ModelSource("hub", {sha256: f"https://hub.lan/{sha256}" for sha256 in wanted}, "hf_canary")]

    carried = base64.b64encode(b"hf_canary").decode()
    (begin,) = begin_changes(GPU, HostState(), hub, WATCHER)
    assert isinstance(begin.how, DeferredScript)
    step = begin.how.make(print)
    assert step.script.count(carried) == 1
    assert "hf_canary" not in step.script.replace(carried, "")
    for spelling in ("hf_canary", carried):
        assert spelling not in step.says + repr(step) + begin.says + repr(begin)


@pytest.mark.parametrize(("name", "steps"), [("chat", unit_changes), ("drafter", project_changes)])
def test_a_model_that_came_again_is_loaded_again(name: str, steps: Callable[..., list[Change]]) -> None:
    seen = seen_of(CPU)
    (instance,) = (each for each in CPU.instances if each.name == name)
    changed(instance.service, instance.model_path)(seen)
    assert steps(instance, seen, KEYS.get(name))
