"""The roles on pyinfra's @fake connector: a virgin host, one that is as planned, and hosts that are neither."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from llamaherd.pipeline import inspection
from llamaherd.plan import Plan
from llamaherd.role.role import Role
from tests.support.fake import Ran, host_data, is_question, run
from tests.support.ours import tasks
from tests.support.rigs import KEY, ROOT, SHA, converged, cpu_rig, gpu_rig, planned

VIRGIN = [
    *("os\tdebian-13", "arch\tx86_64", "systemd\tyes"),
    *(f"free\t/var/lib\t{10**12}\toverlay", f"store\t/var/lib\t{10**12}\toverlay\toverlay\trw"),
]
WITHOUT_STEPS = ("preflight", "no longer", "change together", "all that was")
"""Those that do nothing on a virgin host."""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A rig whose files are there, with the right hashes, and whose key is in the environment."""
    monkeypatch.setenv("CHAT_KEY", KEY)
    changes = {}
    for path, name in (("engines/main/source", "archive"), ("models/gemma", "file"), ("models/moe", "file")):
        file = tmp_path / path.replace("/", "-")
        file.write_text(path)
        changes[f"{path}/{name}"] = str(file)
        changes[f"{path}/sha256"] = hashlib.sha256(path.encode()).hexdigest()
    return planned(cpu_rig(), changes)


def names(plan: Plan) -> list[str]:
    """Every line of a run. Which tasks there are, and in which order, golden files say: `tests/render/golden/run_*`."""
    return ["preflight | can the plan be applied?", *tasks(plan), "all that was declared"]


def switch_of(name: str) -> str:
    """Return how the document begins by which a server is switched."""
    return f'"verb":"serve.switch.switch","input":{{"server":{{"name":"{name}"'


def test_a_virgin_host_gets_everything_in_order(plan: Plan) -> None:
    ran = run(plan, VIRGIN)
    assert ran.operations == names(plan)
    assert not ran.failed
    assert ran.changed == [name for name in names(plan) if not any(word in name for word in WITHOUT_STEPS)]
    marks = (
        '"verb":"base.install"',
        '"verb":"base.accounts"',
        "wait-healthy",
        '"verb":"engines.admit_source"',
        '"verb":"engines.build"',
        '"verb":"serve.image.make"',
        switch_of("chat"),
        switch_of("drafter"),
    )
    found = [next(n for n, script in enumerate(ran.steps) if mark in script) for mark in marks]
    assert found == sorted(found)
    sums = [plan.builds[0].source.sha256, *(model.files[0].sha256 for model in plan.models)]
    assert ran.sent == [f"/var/lib/llamaherd/incoming/{sha256}" for sha256 in sums]


def test_a_host_that_is_as_planned_is_left_alone(plan: Plan) -> None:
    ran = run(plan, converged(plan, {"chat": KEY}))
    assert ran.operations == names(plan)
    assert (ran.changed, ran.sent, ran.failed) == ([], [], False)
    # One look for all operations, and nothing else.
    assert ran.commands == ["inspect"]
    assert not ran.steps


HUB = "https://hub.lan"
"""Where `hub_lock` has its model from."""


@pytest.fixture
def with_hub(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """That rig, with a model from a hub that wants a token."""
    monkeypatch.setenv("HF_ENDPOINT", HUB)
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    (model,) = (model for model in planned(gpu_rig()).models if model.url)
    return plan.model_copy(update={"models": (*plan.models, model)})


def test_models_are_begun_before_engines_and_awaited_after_them(with_hub: Plan) -> None:
    ran = run(with_hub, VIRGIN)
    assert not ran.failed
    first, build, wait = (
        next(n for n, script in enumerate(ran.scripts) if mark in script)
        for mark in (
            '"verb":"models.begin"',
            '"verb":"engines.build"',
            '"verb":"models.wait"',
        )
    )
    assert first < build < wait
    carrying = [each["verb"] for each in ran.documents if "hf_canary" in json.dumps(each)]
    assert carrying == ["models.begin", "models.wait"]
    assert not [command for command in ran.commands if "hf_canary" in command]


def test_a_fetch_costs_nothing_when_all_is_there(with_hub: Plan) -> None:
    ran = run(with_hub, converged(with_hub, {"chat": KEY}))
    assert (ran.changed, ran.failed) == ([], False)
    assert ran.commands == ["inspect"]


def looks(ran: Ran) -> int:
    return len(ran.scripts) - len(ran.steps)


def test_whoever_comes_after_a_change_looks_anew(plan: Plan) -> None:
    ran = run(plan, VIRGIN)
    # As this stand-in never changes, each operation but two has something to do.
    assert looks(ran) == len(ran.changed)
    stopped = [line for line in converged(plan, {"chat": KEY}) if not line.startswith(("unit\t", "listens\t"))]
    one = run(plan, stopped)
    assert one.changed == ["serve | chat (systemd)"]
    assert looks(one) == 2, "one before that change, and one after it"


def test_a_look_that_is_old_is_not_trusted(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamaherd.deploy.operations.FRESH_SECONDS", 0)
    ran = run(plan, converged(plan, {"chat": KEY}))
    assert (ran.changed, looks(ran)) == ([], len(names(plan)) - 1), "what says that all is done asks nobody"


def test_a_question_is_written_once_for_each_look(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Plan] = []

    def counted(plan: Plan, roles: Sequence[Role]) -> bytes:
        written.append(plan)
        return inspection.inspect_request(plan, roles)

    monkeypatch.setattr("llamaherd.deploy.operations.inspect_request", counted)
    ran = run(plan, converged(plan, {"chat": KEY}))
    assert (ran.changed, looks(ran), len(written)) == ([], 1, 2), "once while it prepares, and once when it does"


def test_an_endpoint_that_is_none_fails_the_host_with_a_sentence(
    with_hub: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "hub.lan")
    ran = run(with_hub, VIRGIN)
    assert ran.failed
    assert "HF_ENDPOINT is not a plain http or https URL" in caplog.text
    assert "help: set it like" in caplog.text


DRIFTS: dict[str, tuple[Callable[[str], bool], list[str]]] = {
    "a package is gone": (lambda line: "\tccache\t" in line, ["base | packages"]),
    "a model is gone": (lambda line: line.startswith("stored") and "moe" in line, ["models | in the store"]),
    "the unit is gone": (
        lambda line: "llama-chat.service" in line or line.startswith("unit") or "1F90" in line,
        ["serve | chat (systemd)"],
    ),
    "the image is gone": (lambda line: line.startswith("image"), ["serve | images"]),
    "the container is gone": (
        lambda line: line.startswith("container") or "1F91" in line,
        ["serve | drafter (compose)"],
    ),
}


@pytest.mark.parametrize("case", DRIFTS)
def test_a_drift_changes_what_it_concerns(plan: Plan, case: str) -> None:
    lost, changed = DRIFTS[case]
    ran = run(plan, [line for line in converged(plan, {"chat": KEY}) if not lost(line)])
    assert (ran.changed, ran.failed) == (changed, False)


def test_what_stands_in_the_way_stops_it_before_anything_changes(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    world = [line.replace("debian-13", "debian-12").replace(str(10**12), "1000") for line in VIRGIN]
    ran = run(plan, [*world, "listens\t1F90", "holder\t8080\t7\tnc\t"])
    assert ran.failed
    assert ran.changed == []
    assert not ran.steps
    said = caplog.text
    assert "this host runs debian-12, but the inventory declares debian-13" in said
    assert "port 8080 of instance `chat` is taken by nc (process 7)" in said
    assert "/var/lib has 1.0 kB free" in said


@pytest.mark.parametrize("holder", [[], ["holder\t8080\t7\tdocker-proxy\t"]], ids=["gone by then", "not running yet"])
def test_a_port_that_passes_to_its_next_holder_is_not_taken(
    plan: Plan, holder: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    # As a look finds it while another run takes one server away and starts the next.
    passing = [*VIRGIN, "listens\t1F90", *holder]
    ran = run(plan, VIRGIN, earlier=[passing, passing])
    assert not ran.failed
    assert caplog.text.count("inspecting again") == 1
    assert "serve | chat (systemd)" in ran.changed


def test_a_port_that_nobody_names_for_long_is_taken(
    plan: Plan, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamaherd.deploy.operations.SETTLING_INSPECTIONS", 1)
    ran = run(plan, [*VIRGIN, "listens\t1F90"])
    assert (ran.failed, ran.changed) == (True, [])
    assert "port 8080 of instance `chat` is taken by something else" in caplog.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models/moe/sha256": SHA}, f"but the inventory or its lock has {SHA}"),
        ({"models/moe/file": "/nowhere/moe.gguf"}, "cannot read /nowhere/moe.gguf: No such file or directory"),
        (
            {"instances/chat/api_key": {"env": "NOBODY_SETS_THIS"}},
            "there is no API key in the environment variable NOBODY_SETS_THIS",
        ),
    ],
    ids=["wrong sha256", "no file", "no key"],
)
def test_what_the_controller_lacks_stops_it_before_anything_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, changes: dict[str, object], words: str
) -> None:
    files: dict[str, object] = {"models/gemma/file": str(tmp_path / "a"), "models/moe/file": str(tmp_path / "a")}
    (tmp_path / "a").write_text("a")
    files["models/gemma/sha256"] = files["models/moe/sha256"] = hashlib.sha256(b"a").hexdigest()
    files["engines/main/source/archive"], files["engines/main/source/sha256"] = (
        str(tmp_path / "a"),
        hashlib.sha256(b"a").hexdigest(),
    )
    files.setdefault("instances/chat/api_key", None)
    ran = run(planned(cpu_rig(), {**files, **changes}), VIRGIN)
    assert ran.failed
    assert ran.changed == []
    assert words in caplog.text


def test_a_host_that_answers_nonsense_fails_with_a_sentence(plan: Plan, caplog: pytest.LogCaptureFixture) -> None:
    ran = run(plan, ["Last login: yesterday"])
    assert ran.failed
    assert ran.changed == []
    assert "printed an unexpected line" in caplog.text


BROKEN = {
    "build": ('"verb":"engines.build"', "engines | main", ["chat", "drafter"]),
    "model": ('"verb":"models.store.admit"', "models | in the store", ["drafter"]),
    "image": ('"verb":"serve.image.make"', "serve | images", ["drafter"]),
    "instance": (switch_of("chat"), "serve | chat (systemd)", []),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_breaks_keeps_only_those_down_that_need_it(
    plan: Plan, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    mark, operation, without = BROKEN[case]
    (moe,) = (model.folder for model in plan.models if model.name == "moe")
    gone = {"build": ("build\t",), "model": (f"stored\t{moe}", f"verified\t{moe}"), "image": ("image\t",)}
    lost = ("unit\t", "container\t", "listens\t", *gone.get(case, ()))
    world = [line for line in converged(plan, {"chat": KEY}) if not line.startswith(lost)]
    ran = run(plan, world, broken=lambda script: not is_question(script) and mark in script)
    assert ran.failed
    assert f"{operation}" in caplog.text.rpartition("it broke")[0].splitlines()[-1]
    assert caplog.text.count("is left as it is: its") == 2 * len(without)  # and once more in the end
    begun = {name for name in ("chat", "drafter") if any(switch_of(name) in said for said in ran.scripts)}
    assert begun == {"chat", "drafter"} - set(without)


def test_a_key_is_in_no_command(plan: Plan) -> None:
    ran = run(plan, VIRGIN)
    assert [each["verb"] for each in ran.documents if KEY in json.dumps(each)] == ["serve.switch.switch"]
    assert not [command for command in ran.commands if KEY in command]


def pyinfra(tmp_path: Path, plan: Plan, world: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    """The user's own command, with deploy.py as it is."""
    (tmp_path / "data.json").write_text(json.dumps(host_data(plan, world)))
    inventory = tmp_path / "fleet.py"
    inventory.write_text(
        f"import json\nimport sys\nfrom pathlib import Path\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from llamaherd.deploy import run_state\nfrom tests.support.fake import Alone, play_inspections\n"
        "run_state.HostLock = Alone\nplay_inspections()\n"
        'hosts = [("@fake/box", json.loads((Path(__file__).parent / "data.json").read_text()))]\n'
    )
    return subprocess.run(
        [str(Path(sys.executable).with_name("pyinfra")), str(inventory), "deploy.py", *options],
        cwd=ROOT,
        env={**os.environ, "PYINFRA_PROGRESS": "off", "HF_TOKEN": "hf_canary"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_pyinfras_own_table_says_no_change(plan: Plan, tmp_path: Path) -> None:
    done = pyinfra(tmp_path, plan, converged(plan, {"chat": KEY}), "-y")
    assert done.returncode == 0, done.stderr
    (total,) = [line.split() for line in done.stderr.splitlines() if "Grand total" in line]
    lines = str(len(names(plan)))
    assert total == ["Grand", "total", lines, "-", "-", lines]


@pytest.mark.parametrize("options", [("-y", "-vvv"), ("-y", "--json"), ("--dry", "-vvv", "--diff")], ids=" ".join)
def test_no_secret_is_said_however_much_is_said(plan: Plan, tmp_path: Path, options: tuple[str, ...]) -> None:
    done = pyinfra(tmp_path, plan, VIRGIN, *options)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "drafter (compose)" in said
    for secret in (KEY, base64.b64encode(KEY.encode()).decode()[:-4], "hf_canary"):
        assert secret not in said


@pytest.mark.parametrize("options", [("-y",), ("--dry",)], ids=" ".join)
def test_a_key_that_is_gone_is_a_sentence(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.delenv("CHAT_KEY")
    done = pyinfra(tmp_path, plan, VIRGIN, *options)
    assert "Traceback" not in done.stderr
    assert "UnreadableKeyError" not in done.stderr
    assert done.returncode in {0, 1} if options == ("--dry",) else done.returncode == 1
