"""The plan as a law: the same in, the same out; each id changes with what it stands for, and with nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock, LockedFile
from llamaherd.lock.apply import NotLockedError
from llamaherd.plan import (
    BandwidthRule,
    BuildPlan,
    FromFolder,
    FromHub,
    FromPeer,
    InstancePlan,
    Plan,
    StorePlan,
)
from roles.engines import compile_input
from tests.support.ours import plan
from tests.support.rigs import (
    COMMIT,
    DIGEST,
    GONE,
    OTHER_COMMIT,
    OTHER_SHA,
    ROOT,
    Declared,
    changed,
    cpu_rig,
    gpu_rig,
    hub_lock,
    planned,
)

RIGS = pytest.mark.parametrize("declared", [cpu_rig(), gpu_rig()], ids=["cpu", "gpu"])


def build_of(plan: Plan, engine: str) -> BuildPlan:
    return next(build for build in plan.builds if build.engine == engine)


def instance_of(plan: Plan, name: str) -> InstancePlan:
    return next(instance for instance in plan.instances if instance.name == name)


@RIGS
def test_same_rig_and_lock_same_plan(declared: Declared) -> None:
    first, second = planned(declared), planned(declared)
    assert first == second
    assert first.model_dump_json() == second.model_dump_json()


@RIGS
def test_the_order_in_which_things_are_declared_does_not_matter(declared: Declared) -> None:
    turned = declared | {key: dict(reversed(declared[key].items())) for key in ("engines", "models", "instances")}
    assert planned(turned) == planned(declared)


@RIGS
def test_a_plan_survives_json(declared: Declared) -> None:
    plan = planned(declared)
    assert Plan.model_validate(plan.model_dump(mode="json")) == plan
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_does_not_hang_on_how_python_hashes_strings() -> None:
    script = """
from tests.support.rigs import gpu_rig, planned
kinds = enumerate(["90a", "90", "86", "120f"])
cards = {f"c{n}": {"model": "X", "uuid": f"GPU-{n}", "architecture": kind} for n, kind in kinds}
on = {f"instances/{name}/on": list(cards) for name in ("reasoner", "worker", "boxed")}
print(planned(gpu_rig(), {"gpus/cards": cards, **on}))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2", "3")
    }
    assert len(said) == 1


ARCHIVE: dict[str, Any] = {"archive": "/srv/ik.tar.gz", "sha256": OTHER_SHA}
REBUILDS: dict[str, tuple[str, dict[str, Any]]] = {
    "commit": ("main", {"engines/main/source/commit": OTHER_COMMIT}),
    "source": ("main", {"engines/main/source": ARCHIVE}),
    "sha256": ("ik", {"engines/ik/source/sha256": OTHER_SHA}),
    "folder": ("ik", {"engines/ik/source/folder": "other"}),
    "overlay text": ("ik", {"engines/ik/source/overlay/common\\build": "x"}),
    "no overlay": ("ik", {"engines/ik/source/overlay": {}}),
    "options": ("ik", {"engines/ik/options/GGML_LTO": True}),
    "one option less": ("ik", {"engines/ik/options/GGML_LTO": GONE}),
    "version": ("main", {"engines/main/source/version": {"number": 7}}),
    "another card": ("ik", {"gpus/cards/old/model": "RTX 4090"}),
    "architecture": ("ik", {"gpus/cards/old/architecture": "87"}),
    "one card more": ("ik", {"instances/worker/on": ["old", "new"]}),
    "no card": ("ik", {"instances/worker/on": []}),
    "CUDA": ("main", {"gpus/cuda": "12.9"}),
    "operating system": ("main", {"host/os": "ubuntu-22.04"}),
}


@pytest.mark.parametrize("case", REBUILDS)
def test_what_makes_another_build(case: str) -> None:
    engine, changes = REBUILDS[case]
    before, after = build_of(planned(gpu_rig()), engine), build_of(planned(gpu_rig(), changes), engine)
    assert after.id != before.id
    assert compile_input(after) != compile_input(before)
    assert after.folder.endswith(after.id)


KEEPS: dict[str, dict[str, Any]] = {
    "the rig's name": {"rig": "other"},
    "where it is": {"connect/host": "other.lan"},
    "its memory": {"host/ram": "64GB"},
    "its cores": {"host/cpu/cores": 3},
    "ports": {"instances/worker/port": 9999},
    "context": {"instances/worker/context": 4096},
    "where the archive is fetched from": {"engines/ik/source/archive": "https://elsewhere.lan/other-name.tar.gz"},
    "where git is": {"engines/main/source/git": "https://elsewhere.lan/llama.cpp"},
    "which of two like cards": {"gpus/cards/old/uuid": "GPU-other"},
}


@pytest.mark.parametrize("case", KEEPS)
def test_what_keeps_the_build(case: str) -> None:
    before, after = planned(gpu_rig()), planned(gpu_rig(), KEEPS[case])
    assert [build.id for build in after.builds] == [build.id for build in before.builds]


def test_an_engine_by_another_name_is_the_same_build() -> None:
    declared = gpu_rig()
    declared["engines"]["renamed"] = declared["engines"].pop("ik")
    declared["instances"]["worker"]["engine"] = "renamed"
    assert build_of(planned(declared), "renamed").id == build_of(planned(gpu_rig()), "ik").id


RESTARTS: dict[str, dict[str, Any]] = {
    "context": {"context": 4096},
    "kv": {"kv": "q4_0"},
    "port": {"port": 9090},
    "parallel": {"parallel": 2, "draft": GONE},
    "threads": {"threads": 3},
    "draft": {"draft": {"mtp": 4}},
    "no draft": {"draft": GONE},
    "listen": {"listen": "0.0.0.0", "api_key": {"env": "K"}},
    "key": {"api_key": {"env": "K"}},
    "cards": {"on": ["old", "new"]},
    "extra arguments": {"extra_args": []},
    "engine": {"engine": "main"},
    "model": {"model": "gemma"},
    "time to load": {"load_timeout": 7200},
}


@pytest.mark.parametrize("case", RESTARTS)
def test_what_one_instance_restarts_for_and_no_other(case: str) -> None:
    changes = {f"instances/worker/{key}": value for key, value in RESTARTS[case].items()}
    # Which GPUs an engine is built for follows from its instances, so that `small` and `boxed` are looked at.
    before, after = planned(gpu_rig()), planned(gpu_rig(), changes)
    assert instance_of(after, "worker").spec != instance_of(before, "worker").spec
    for name in ("reasoner", "small", "boxed"):
        assert instance_of(after, name) == instance_of(before, name)


def test_a_build_restarts_its_instances_only() -> None:
    before, after = planned(gpu_rig()), planned(gpu_rig(), {"engines/main/source/commit": OTHER_COMMIT})
    restarted = {i.name for i in after.instances if i.spec != instance_of(before, i.name).spec}
    assert restarted == {"reasoner", "boxed"}


def test_another_revision_of_a_model_restarts_its_instances() -> None:
    moved = Lock(models=tuple(m.model_copy(update={"commit": COMMIT}) for m in hub_lock().models))
    before, after = planned(gpu_rig()), plan(Rig.model_validate(gpu_rig()), moved)
    restarted = {i.name for i in after.instances if i.spec != instance_of(before, i.name).spec}
    assert restarted == {"reasoner", "worker"}


@RIGS
def test_where_a_key_is_read_from_restarts_nothing(declared: Declared) -> None:
    name = next(iter(declared["instances"]))
    before = planned(declared, {f"instances/{name}/api_key": {"env": "ONE"}})
    after = planned(declared, {f"instances/{name}/api_key": {"file": "/two"}})
    assert instance_of(after, name).spec == instance_of(before, name).spec


@RIGS
def test_the_running_process_says_its_spec(declared: Declared) -> None:
    for instance in planned(declared).instances:
        said = "Environment=LLAMAHERD_SPEC={}\n" if instance.backend == "systemd" else 'llamaherd.spec: "{}"\n'
        assert said.format(instance.spec) in instance.file.text


def test_a_build_for_cards() -> None:
    plan = planned(gpu_rig())
    llama, ik = build_of(plan, "main"), build_of(plan, "ik")
    assert llama.options["CMAKE_CUDA_ARCHITECTURES"] == "86;120"
    assert llama.options["GGML_CUDA_FA_QUANTS"] == "all"
    assert ik.options["CMAKE_CUDA_ARCHITECTURES"] == "86"
    assert ik.options["GGML_CUDA_FA_ALL_QUANTS"] == "ON"
    for build in (llama, ik):
        assert build.options["GGML_CUDA"] == "ON"
        assert build.options["CMAKE_CUDA_COMPILER"] == "/usr/local/cuda-13.0/bin/nvcc"
        assert build.cuda == "13.0"


def test_a_build_for_the_cpu_on_a_rig_with_cards() -> None:
    build = build_of(planned(gpu_rig(), {"instances/worker/on": []}), "ik")
    assert [name for name in build.options if "CUDA" in name] == []
    assert build.cuda is None
    assert build.disk < build_of(planned(gpu_rig()), "ik").disk


def test_options_of_the_owner_come_last() -> None:
    options = build_of(planned(gpu_rig(), {"engines/ik/options/GGML_CUDA_FA_ALL_QUANTS": False}), "ik").options
    assert (options["GGML_AVX512"], options["GGML_LTO"], options["EXTRA"]) == ("ON", "OFF", "a b")
    assert options["GGML_CUDA_FA_ALL_QUANTS"] == "OFF"


def test_a_model_from_a_hub() -> None:
    model = next(model for model in planned(gpu_rig()).models if model.name == "35b")
    repo = "unsloth/Qwen3.6-35B-A3B-MTP-GGUF"
    assert model.url == f"https://hub.lan/{repo}/resolve/{OTHER_COMMIT}"
    assert model.folder == f"/var/lib/llamaherd/models/{repo}/{OTHER_COMMIT}"
    assert [(file.name, file.size) for file in model.files] == [
        ("UD-Q4_K_XL/35b-00001-of-00002.gguf", 10**10),
        ("UD-Q4_K_XL/35b-00002-of-00002.gguf", 2 * 10**10),
    ]
    assert model.path == f"{model.folder}/UD-Q4_K_XL/35b-00001-of-00002.gguf"


def test_a_model_from_a_file() -> None:
    model = next(model for model in planned(gpu_rig()).models if model.name == "gemma")
    assert (str(model.local), model.url) == ("/srv/gemma.gguf", None)
    assert model.folder == f"/var/lib/llamaherd/models/local/{'a5' * 8}"


def test_a_hub_model_that_is_not_locked() -> None:
    with pytest.raises(NotLockedError, match=r"model `35b` \(unsloth/.* at main, UD-Q4_K_XL/\*\)"):
        plan(Rig.model_validate(gpu_rig()), Lock())


def test_only_what_is_used_is_planned() -> None:
    declared = gpu_rig()
    for name in ("worker", "small", "boxed"):
        del declared["instances"][name]
    plan = planned(declared)
    assert ([b.engine for b in plan.builds], [m.name for m in plan.models], plan.images) == (["main"], ["35b"], ())
    assert plan.runtime is None


def test_an_image_is_run_as_it_is() -> None:
    small = instance_of(planned(gpu_rig()), "small")
    assert (small.server.image, small.server.program, small.build) == (
        f"ghcr.io/ggml-org/llama.cpp@sha256:{DIGEST}",
        None,
        None,
    )


def test_two_instances_of_one_build_share_an_image() -> None:
    plan = planned(cpu_rig(), {"instances/chat/backend": "compose"})
    assert len(plan.images) == 1
    assert {instance.server.image for instance in plan.instances} == {plan.images[0].tag}


STORE = {
    "path": "/srv/models/",
    "from": ["six", "/mnt/usb disk", "gone", "hub", "near"],
    "bandwidth": [{"limit": "8MB/s", "hours": "7:00-23:00"}, {"limit": "64Mbit/s"}],
    "connections": 3,
}


def neighbour(name: str, changes: Mapping[str, Any]) -> Rig:
    return Rig.model_validate(changed(cpu_rig(), {"rig": name, "connect/host": f"{name}.lan", **changes}))


def test_where_models_come_from() -> None:
    six = neighbour("six", {"store": {"path": "/tank", "share": {"address": "10.0.0.6", "port": 9000}}})
    near = neighbour("near", {"connect/key": "/home/tom/.ssh/id"})
    declared = changed(gpu_rig(), {"store": STORE})
    plan_ = plan(Rig.model_validate(declared), hub_lock(), {"six": six, "near": near})
    assert plan_.store == StorePlan(
        path="/srv/models",
        sources=(
            FromPeer(name="six", connect=six.connect, address="10.0.0.6", port=9000, store="/tank"),
            FromFolder(path="/mnt/usb disk"),
            FromHub(),
            FromPeer(
                name="near",
                connect=near.connect,
                address="near.lan",
                port=8970,
                store="/var/lib/llamaherd/models",
            ),
        ),
        bandwidth=(BandwidthRule("07:00", "23:00", 8_000_000), BandwidthRule("00:00", "00:00", 8_000_000)),
        connections=3,
    )
    assert Plan.model_validate(plan_.model_dump(mode="json")) == plan_
    assert Plan.model_validate_json(plan_.model_dump_json()) == plan_


def test_models_lie_in_the_store_and_servers_read_them_there() -> None:
    plan = planned(gpu_rig(), {"store/path": "/srv/models"})
    assert {model.folder.rpartition("/models/")[0] for model in plan.models} == {"/srv"}
    for instance in plan.instances:
        assert instance.model_folder.startswith("/srv/models/")
        assert f"/srv/models/{instance.model_folder.removeprefix('/srv/models/')}" in instance.file.text
        assert "/var/lib/llamaherd/models" not in instance.file.text


def test_by_default_models_come_from_the_hub_without_a_limit() -> None:
    assert planned(gpu_rig()).store == StorePlan()


def test_a_page_of_a_model_can_be_named() -> None:
    models = {model.name: model for model in planned(gpu_rig()).models}
    assert (models["35b"].repo, models["35b"].revision) == ("unsloth/Qwen3.6-35B-A3B-MTP-GGUF", "main")
    assert (models["gemma"].repo, models["gemma"].revision) == (None, None)


def with_projector() -> Lock:
    projector = LockedFile(path="mmproj-F16.gguf", size=10**9, sha256="f" * 64)
    (model,) = hub_lock().models
    return Lock(models=(model.model_copy(update={"mmproj": "mmproj*", "projector": projector}),))


def test_a_projector_belongs_to_its_model() -> None:
    rig = Rig.model_validate(changed(gpu_rig(), {"models/35b/mmproj": "mmproj*"}))
    with pytest.raises(NotLockedError):
        plan(rig, hub_lock())
    whole = plan(rig, with_projector())
    model = next(model for model in whole.models if model.name == "35b")
    assert [file.name for file in model.files][-1] == "mmproj-F16.gguf"
    assert model.path.endswith("35b-00001-of-00002.gguf")
    reasoner, plain = instance_of(whole, "reasoner"), instance_of(planned(gpu_rig()), "reasoner")
    assert (
        reasoner.server.arguments[reasoner.server.arguments.index("--mmproj") + 1] == f"{model.folder}/mmproj-F16.gguf"
    )
    assert reasoner.server.start_seconds == plain.server.start_seconds + 10
    assert reasoner.spec != plain.spec
    assert instance_of(whole, "small").spec == instance_of(planned(gpu_rig()), "small").spec


def test_a_model_that_drafts_is_read_like_the_one_that_is_served() -> None:
    plan = planned(gpu_rig(), {"instances/boxed/model": "35b", "instances/boxed/draft": {"model": "gemma", "max": 4}})
    served, drafting = plan.models
    assert (served.name, drafting.name) == ("35b", "gemma")
    boxed = instance_of(plan, "boxed")
    assert boxed.server.folders == (served.folder, drafting.folder)
    assert (boxed.mtp, boxed.drafts) == (0, True)
    assert boxed.server.arguments[boxed.server.arguments.index("--spec-draft-model") + 1] == drafting.path
    volumes = yaml.safe_load(boxed.file.text)["services"]["server"]["volumes"]
    assert [volume["source"] for volume in volumes] == [served.folder, drafting.folder]


def test_a_model_that_only_drafts_is_planned() -> None:
    changes = {
        "instances/reasoner/draft": {"model": "gemma"},
        **{f"instances/{n}/model": "35b" for n in ("small", "boxed")},
    }
    assert [model.name for model in planned(gpu_rig(), changes).models] == ["35b", "gemma"]


def test_what_a_server_was_started_with_is_its_key_and_its_models() -> None:
    for instance in planned(gpu_rig()).instances:
        assert instance.server.inputs == ("-", instance.model_folder)
    chat = instance_of(planned(cpu_rig()), "chat")
    assert chat.server.inputs == ("/etc/llamaherd/keys/chat", chat.model_folder)


def test_time_to_load_grows_with_the_model() -> None:
    plan = planned(gpu_rig())
    assert instance_of(plan, "reasoner").server.start_seconds == 60 + 300
    assert instance_of(planned(gpu_rig(), {"instances/reasoner/load_timeout": 7}), "reasoner").server.start_seconds == 7


@pytest.mark.parametrize("system", ["debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"])
def test_every_system_has_its_packages(system: str) -> None:
    plan = planned(cpu_rig(), {"host/os": system})
    assert plan.runtime
    assert {"cmake", "docker.io", "mmdebstrap"} <= {*plan.packages, *plan.runtime.packages}
    assert list(plan.packages) == sorted(set(plan.packages))


def test_no_key_is_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", "sk-canary")
    plan = planned(cpu_rig())
    assert "sk-canary" not in repr(plan) + plan.model_dump_json()
    assert json.loads(plan.model_dump_json())["instances"][0]["server"]["endpoint"]["key"] == {
        "file": None,
        "env": "CHAT_KEY",
    }
