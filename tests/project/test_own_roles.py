"""A role of a fleet's own: the example of docs/roles.md, as somebody would copy it, and what is wrong with others."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.program import request
from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.onhost.document import encode
from llamaherd.onhost.system import Host
from llamaherd.onhost.verification import Inspected, VerifyInput
from llamaherd.onhost.verification import inspect as run_inspection
from llamaherd.onhost.verification import verify as run_verification
from llamaherd.pipeline import plan as pipeline_plan
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.pipeline.inspection import inspect_input, state_of
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.plan import plan as make_plan
from llamaherd.pipeline.verify import facts_of, judge_host, verify_input
from llamaherd.plan import Plan
from llamaherd.role.role import Role, Run
from roles import ROLES
from tests.support.fake import run
from tests.support.ours import inspect_text, parse_state, probes_text
from tests.support.own_role import SHOWN, write_example
from tests.support.rigs import KEY, ROOT, changed, converged, cpu_rig, hub_lock, planned

TEXT = "Rig box serves:\n  chat at port 8080\n  drafter at port 8081\n"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet's folder with the example in it."""
    write_example(tmp_path)
    return tmp_path


def own_of(fleet: Path) -> Role:
    (own,) = [role for role in all_roles(fleet) if role not in ROLES]
    return own


def test_it_comes_before_servers(fleet: Path) -> None:
    names = [role.name for role in all_roles(fleet)]
    assert names[-5:] == ["motd", "serve", "suspend", "chat_page", "monitoring"]
    assert [name for name in names if name != "motd"] == [role.name for role in ROLES]


def test_it_takes_part_in_every_verb(fleet: Path) -> None:
    plan, roles = planned(cpu_rig()), all_roles(fleet)
    assert SHOWN in pipeline_plan.show_plan(plan, roles)
    assert "/etc/motd" in inspect_text(plan, roles)
    assert "/etc/motd" in probes_text(plan, roles)


def test_it_is_done_where_it_is_not_as_planned_and_then_no_more(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)
    plan, roles = planned(cpu_rig()), all_roles(fleet)
    (file,) = own_of(fleet).brings(plan)
    assert file.text == TEXT
    world = converged(plan, {"chat": KEY})
    assert run(plan, world, roles=roles).changed == ["motd | message"]
    there = [f"file\t{file.path}\t644 0 root 1.0", f"sum\t{file_hash(TEXT)}\t{file.path}"]
    ran = run(plan, [*world, *there], roles=roles)
    assert (ran.changed, ran.failed) == ([], False)
    drifted = run(plan, [*world, there[0].replace("644", "666"), there[1]], roles=roles)
    assert drifted.changed == ["motd | message"]
    written = [each["input"]["files"] for each in drifted.documents if each["verb"] == "base.put_files"]
    assert written == [[{"path": "/etc/motd", "text": TEXT, "mode": 0o644, "owner": "root"}]]


def file_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


SHELL = """from dataclasses import dataclass
from llamaherd.host.state import StatePart
SCRIPT = '''
[ -e /nonexistent ] && say odd no
say odd "two words" "$(echo a+b)"
[ -e /nonexistent ] && say odd no
'''

@dataclass(frozen=True)
class Odd(StatePart):
    words: tuple[str, ...] = ()

def parse(facts):
    words = []
    for kind, *fields in facts:
        if kind != "odd" or len(fields) != 2:
            raise ValueError(kind)
        words += fields
    return [Odd(tuple(words))]

ROLE = Role(name="odd", summary="", waits=True, inspect=lambda plan: SCRIPT, parse=parse)
"""


@pytest.mark.usefixtures("starts_processes")
def test_it_inspects_by_a_shell_script(tmp_path: Path) -> None:
    odd(tmp_path, SHELL)
    roles = [role for role in all_roles(tmp_path) if role.name == "odd"]
    found = run_inspection(inspect_input(planned(cpu_rig()), roles), Host(print, print))
    state = state_of(encode(found), roles)
    assert [getattr(part, "words", None) for part in state.parts.values()] == [("two words", "a+b")]
    with pytest.raises(UnexpectedLineError, match="printed an unexpected line: 'odd: odd'"):
        state_of(encode(Inspected(lines={"odd": ("@ begin", "odd\tone", "@ end")})), roles)
    with pytest.raises(UnexpectedLineError):
        state_of(encode(Inspected(lines={"another": ("@ begin", "odd\ta\tb", "@ end")})), roles)


def test_a_change_says_why(fleet: Path) -> None:
    plan = planned(cpu_rig())
    (task,) = own_of(fleet).tasks(plan)
    state = parse_state([])
    (change,) = task.changes(state, Run(connect=Connect(host="box")))
    assert str(change) == "update file /etc/motd: /etc/motd is not there"


def test_herd_shows_it(fleet: Path) -> None:
    (fleet / "one.yaml").write_text((ROOT / "inventory/box.yaml").read_text())
    herd = Path(sys.executable).with_name("herd")
    done = subprocess.run([herd, "-i", fleet, "show"], capture_output=True, text=True, check=False)
    assert "motd       /etc/motd names what is served" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "role `odd` has no ROLE"),
        ("ROLE = 1\n", "role `odd` has no ROLE"),
        ("import nothing_of_the_kind\n", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("\n1 / 0\n", ":2:1: error LH290: role `odd` cannot be loaded: ZeroDivisionError"),
        ("def f(:\n", "cannot be loaded: SyntaxError"),
        ("raise SystemExit(3)\n", "cannot be loaded: SystemExit: 3"),
        (
            "from llamaherd.role.role import Role\nROLE = Role(name='even', summary='')\n",
            "the role in this folder is called `even`",
        ),
    ],
)
def test_a_role_that_is_none_is_a_sentence(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "roles/odd").mkdir(parents=True)
    (tmp_path / "roles/odd/__init__.py").write_text(code)
    with pytest.raises(InventoryError) as caught:
        all_roles(tmp_path)
    assert said in str(caught.value)
    assert "LH290" in str(caught.value)


def test_the_name_of_one_of_ours_is_taken(tmp_path: Path) -> None:
    (tmp_path / "roles/serve").mkdir(parents=True)
    code = "from llamaherd.role.role import Role\nROLE = Role(name='serve', summary='')\n"
    (tmp_path / "roles/serve/__init__.py").write_text(code)
    with pytest.raises(InventoryError, match="`serve` is a role of llamaherd's"):
        all_roles(tmp_path)


HEAD = """from llamaherd.role.role import Inspection, PlanPart, Role, Task
from llamaherd.role.changes import Change, DeferredVerb, RunScript

"""
ODD = "ROLE = Role(name='odd', summary='', {})"
NONE = "returns an invalid value: "
BROKEN = {
    "plan": (ODD.format("\n plan=lambda planning: 1 / 0"), 5, "ends in ZeroDivisionError: division by zero"),
    "describe": (ODD.format("describe=lambda plan, _: [plan.rigg]"), 4, "ends in AttributeError"),
    "brings": ("def f(plan):\n    yield 3\n" + ODD.format("brings=f"), 4, f"{NONE}0"),
    "inspect": (ODD.format("inspect=lambda plan: None"), 4, f"{NONE}Input should be a valid string"),
    "tasks": (ODD.format("tasks=lambda plan: [Task(3, None)]"), 4, f"{NONE}0.name"),
    "inspection.given": (
        ODD.format("inspection=Inspection('odd.inspect', lambda plan: 1 / 0, dict, lambda state, found: None)"),
        4,
        "ends in ZeroDivisionError: division by zero",
    ),
    "verification.given": (
        "from llamaherd.role.role import Verification\n"
        + ODD.format("verification=Verification('odd.verify', lambda plan: 1 / 0, dict)"),
        5,
        "ends in ZeroDivisionError: division by zero",
    ),
    "verify": ("import sys\n" + ODD.format("verify=lambda plan: sys.exit()"), 5, "ends in SystemExit"),
}


EVIL = """
class Evil(BaseException):
    def __str__(self): raise ValueError
    def __bool__(self): raise ValueError
    def __len__(self): raise ValueError
    def __iter__(self): raise ValueError
    def __hash__(self): raise ValueError
    def __eq__(self, other): raise ValueError
    def __repr__(self): raise ValueError
class Word(str):
    def __str__(self): raise ValueError
    def __len__(self): raise ValueError
class Worse(Change):
    def __str__(self): raise ValueError
class Mute(Exception):
    def __str__(self): return 3
def thrown(error):
    raise error
def forever():
    while True:
        yield "line"
def half():
    yield "line"
    raise ValueError("half of it")
def again(plan):
    return again(plan)
"""
STRANGE = {
    "is deep": ("describe=lambda plan, _: again(plan)", "ends in RecursionError"),
    "is its own": ("describe=lambda plan, _: thrown(Evil())", "ends in Evil"),
    "says nothing": ("describe=lambda plan, _: thrown(Mute())", "ends in Mute"),
    "says much": ("describe=lambda plan, _: thrown(ValueError('x' * 10**7))", "ends in ValueError: xxx"),
    "leaves": ("describe=lambda plan, _: thrown(SystemExit('no'))", "ends in SystemExit: no"),
    "closes": ("describe=lambda plan, _: thrown(GeneratorExit())", "ends in GeneratorExit"),
    "gives None": ("describe=lambda plan, _: None", NONE),
    "gives a text": ("describe=lambda plan, _: 'a line'", NONE),
    "gives no text": ("describe=lambda plan, _: [b'line']", NONE),
    "gives something odd": ("describe=lambda plan, _: Evil()", "ends in ValueError"),
    "gives odd things": ("describe=lambda plan, _: [Evil()]", NONE),
    "never ends": ("describe=lambda plan, _: forever()", f"{NONE}more than 10,000 items"),
    "breaks off": ("describe=lambda plan, _: half()", "ends in ValueError: half of it"),
    "gives half a character": ("inspect=lambda plan: 'say \\ud800'", f"{NONE}a text in it holds half of a character"),
    "gives a NUL": ("inspect=lambda plan: 'say \\0'", f"{NONE}a text in it holds a NUL"),
    "gives much": ("inspect=lambda plan: 'x' * (9 << 20)", f"{NONE}a text in it is longer than"),
    "gives no number": ("plan=lambda planning: PlanPart(own={'a': [float('nan')]})", f"{NONE}a number in it is nan"),
    "gives no end": ("plan=lambda planning: PlanPart(own=float('inf'))", f"{NONE}a number in it is inf"),
    "gives a huge number": ("plan=lambda planning: PlanPart(own=1 << 99999)", f"{NONE}a number in it is too large"),
    "gives itself": ("plan=lambda planning: PlanPart(own=ITSELF)", f"{NONE}own"),
    "gives no mode": ("brings=lambda plan: [TextFile(path='/x', text='', mode='rwx')]", "ends in ValidationError"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_whatever_a_function_does_is_one_short_sentence_with_its_line(tmp_path: Path, what: str) -> None:
    field, said = STRANGE[what]
    code = f"from llamaherd.plan import TextFile\n{EVIL}\nITSELF = []\nITSELF.append(ITSELF)\n{ODD.format(field)}"
    file = odd(tmp_path, code)
    with pytest.raises(InventoryError) as caught:
        ask_everything(tmp_path)
    (finding,) = caught.value.findings
    assert finding.code == "LH290"
    assert finding.message.startswith(f"`{field.partition('=')[0]}` of role `odd` {said}")
    assert (len(finding.message) < 600, finding.message.isprintable()) == (True, True)
    assert finding.place.file == file
    assert finding.place.line > 3


def test_what_a_function_gives_has_no_methods_of_its_own(tmp_path: Path) -> None:
    change = "Worse('update', 'file', Word('/etc/odd'), (Word('why'),), RunScript('true'))"
    tasks = f"tasks=lambda plan: [Task(Word('it'), lambda state, run: [{change}])]"
    odd(tmp_path, f"{EVIL}\n{ODD.format(tasks)}")
    (task,) = own_of(tmp_path).tasks(planned(cpu_rig()))
    (found,) = task.changes(parse_state([]), Run(connect=Connect(host="box")))
    assert (task.name, str(found)) == ("it", "update file /etc/odd: why")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "class Stop(BaseException): pass\nraise Stop('here')\n",
            ":5:1: error LH290: role `odd` cannot be loaded: Stop",
        ),
        ("def f():\n  f()\nf()\n", ":5:1: error LH290: role `odd` cannot be loaded: RecursionError"),
        ("exec('def f(:')\n", ":4:1: error LH290: role `odd` cannot be loaded: SyntaxError"),
        ("x = 1\0\n", "cannot be loaded: "),
        ("x = '\ud800'\n", "cannot be loaded: "),
        ("from .other import x\n", "cannot be loaded: ModuleNotFoundError"),
        (
            "def __getattr__(name): raise OSError(name)\n",
            ":4:1: error LH290: role `odd` cannot be loaded: OSError",
        ),
        ("class R:\n  @property\n  def __class__(self): return 1 / 0\nROLE = R()\n", "cannot be loaded: ZeroDivision"),
        ("ROLE = Role(name=3, summary='')\n", "role `odd` is invalid: name: "),
        ("ROLE = Role(name='odd', summary='', tasks=3)\n", "role `odd` is invalid: tasks: "),
        (
            "ROLE = Role(name='odd', summary='\\ud800')\n",
            "role `odd` is invalid: a text in it holds half of a character",
        ),
        ("ROLE = Role(name='serve odd', summary='')\n", "the role in this folder is called `serve odd`"),
    ],
)
def test_whatever_a_module_does_is_one_short_sentence(tmp_path: Path, code: str, said: str) -> None:
    file = odd(tmp_path, "")
    file.write_bytes((HEAD + code).encode(errors="surrogatepass"))
    with pytest.raises(InventoryError) as caught:
        all_roles(tmp_path)
    (finding,) = caught.value.findings
    assert said in str(caught.value)
    assert finding.place.file == file
    assert (len(finding.message) < 600, finding.message.isprintable()) == (True, True)


def test_ctrl_c_is_no_error_of_a_role(tmp_path: Path) -> None:
    odd(tmp_path, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        all_roles(tmp_path)


def test_a_name_must_not_begin_like_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "roles/base more").mkdir(parents=True)
    code = "from llamaherd.role.role import Role\nROLE = Role(name='base more', summary='')\n"
    (tmp_path / "roles/base more/__init__.py").write_text(code)
    with pytest.raises(InventoryError, match="`base` is a role of llamaherd's"):
        all_roles(tmp_path)


def odd(folder: Path, code: str) -> Path:
    """The file of a role of a fleet's own."""
    (folder / "roles/odd").mkdir(parents=True)
    file = folder / "roles/odd/__init__.py"
    file.write_text(HEAD + code + "\n")
    return file


def planned_with(fleet: Path) -> Plan:
    """A plan that the fleet's own roles have a part in."""
    return make_plan(locked_facts(Rig.model_validate(changed(cpu_rig(), {})), hub_lock()), hub_lock(), all_roles(fleet))


def ask_everything(fleet: Path) -> None:
    """Have every function of its roles called."""
    plan, roles = planned_with(fleet), all_roles(fleet)
    inspect_text(plan, roles)
    probes_text(plan, roles)
    pipeline_plan.show_plan(plan, roles)
    for role in roles:
        role.tasks(plan)


@pytest.mark.parametrize("function", BROKEN)
def test_what_a_function_raises_or_gives_is_a_sentence(tmp_path: Path, function: str) -> None:
    code, line, said = BROKEN[function]
    file = odd(tmp_path, code)
    (tmp_path / "one.yaml").write_text((ROOT / "inventory/box.yaml").read_text())
    with pytest.raises(InventoryError) as caught:
        ask_everything(tmp_path)
    assert f"{file}:{line}:1: error LH290: `{function}` of role `odd` {said}" in str(caught.value)


def test_herd_says_what_a_function_raised(tmp_path: Path) -> None:
    odd(tmp_path, BROKEN["describe"][0])
    (tmp_path / "one.yaml").write_text((ROOT / "inventory/box.yaml").read_text())
    herd = Path(sys.executable).with_name("herd")
    done = subprocess.run([herd, "-i", tmp_path, "show"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    shown = " ".join(done.stderr.split())  # lines are wrapped, and the path may be long
    assert "__init__.py:4:1: error LH290: `describe` of role `odd` ends in AttributeError" in shown
    assert "Traceback" not in done.stderr


DOES = """
def make(say):
    return 1 / 0
def changes(state, run):
    return [Change("update", "file", "/etc/odd", ("why",), {how})]
ROLE = Role(name="odd", summary="", tasks=lambda plan: [Task("it", {changes})])
"""


@pytest.mark.parametrize(
    ("how", "changes"),
    [
        ("RunScript('true')", "lambda state, run: 1 / 0"),
        ("RunScript(3)", "changes"),
        ("DeferredVerb(make)", "changes"),
    ],
)
def test_a_run_fails_on_that_host_alone(
    tmp_path: Path, how: str, changes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)
    odd(tmp_path, DOES.format(how=how, changes=changes))
    plan = planned(cpu_rig())
    ran = run(plan, converged(plan, {"chat": KEY}), roles=all_roles(tmp_path))
    assert ran.failed
    assert ran.changed == []


def test_tasks_that_cannot_be_told_fail_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)
    odd(tmp_path, "ROLE = Role(name='odd', summary='', tasks=lambda plan: 1 / 0)")
    plan = planned(cpu_rig())
    assert run(plan, converged(plan, {"chat": KEY}), roles=all_roles(tmp_path)).failed


def test_what_a_role_says_itself_is_passed_on(tmp_path: Path) -> None:
    code = """from llamaherd.diagnostics.findings import UserError
def plan(planning):
    raise UserError("no message of the day is declared", "write one")
ROLE = Role(name="odd", summary="", plan=plan)
"""
    odd(tmp_path, code)
    with pytest.raises(UserError, match="no message of the day"):
        planned_with(tmp_path)


SCRIPTED = r"""from llamaherd.role.report import Check
from llamaherd.role.role import Verified
def judge(judging):
    return Verified((Check("motd", judging.outputs["motd", "of it"] == "it works\n@ end\n$HOME", "as printed"),))
ROLE = Role(
    name="odd",
    summary="",
    verify=lambda plan: "section motd 'of it'; printf '%s\\n' 'it works' '@ end' '$HOME' | lines",
    judge=judge,
)
"""


@pytest.mark.usefixtures("starts_processes")
def test_a_role_verifies_by_a_shell_script(tmp_path: Path) -> None:
    """The script is run for real, as the program on a host runs it."""
    odd(tmp_path, SCRIPTED)
    (own,) = [role for role in all_roles(tmp_path) if role.name == "odd"]
    rig, plan, host = Rig.model_validate(cpu_rig()), planned(cpu_rig()), Host(lambda _: None, lambda _: None)
    found = run_verification(VerifyInput(script=verify_input(plan, [own]).script), host)
    (check,) = [
        each for each in judge_host(rig, plan, [own], facts_of(encode(found), [own])).machine if each.name == "motd"
    ]
    assert (check.ok, check.detail) == (True, "as printed")


VERIFIED_BY_VERB = """from llamaherd.role.report import Check
from llamaherd.role.role import Verification, Verified
from .onhost import Count, Counted
def judge(judging):
    return Verified((Check("odd", judging.found(Counted) == Counted(3), "counted"),))
ROLE = Role(
    name="odd",
    summary="",
    verification=Verification("odd.count", lambda plan: Count("abc"), Counted),
    judge=judge,
)
"""
ONHOST = """from dataclasses import dataclass
from llamaherd.onhost.verbs import Verb
from llamaherd.pipeline.fleet_files import locked_facts
@dataclass(frozen=True)
class Count:
    text: str
@dataclass(frozen=True)
class Counted:
    number: int
VERBS = {"count": Verb(Count, lambda given, system: Counted(len(given.text)))}
"""


def test_a_role_verifies_by_a_verb(tmp_path: Path) -> None:
    odd(tmp_path, VERIFIED_BY_VERB).with_name("onhost.py").write_text(ONHOST)
    (own,) = [role for role in all_roles(tmp_path) if role.name == "odd"]
    rig, plan = Rig.model_validate(cpu_rig()), planned(cpu_rig())
    assert json.loads(request("verify", verify_input(plan, [own])))["input"]["parts"] == {"odd.count": {"text": "abc"}}
    for number, right in ((3, True), (4, False)):
        facts = facts_of({"parts": {"odd.count": {"number": number}}}, [own])
        assert [each.ok for each in judge_host(rig, plan, [own], facts).machine if each.name == "odd"] == [right]
    with pytest.raises(UnexpectedLineError):
        facts_of({"parts": {"odd.count": {"number": "3"}}}, [own])


INSPECTED_BY_VERB = """from dataclasses import dataclass
from llamaherd.host.state import StatePart
from .onhost import Count, Counted
@dataclass(frozen=True)
class State(Counted, StatePart):
    pass
def changes(state, run):
    return [Change("update", "odd", str(State.of(state).number), (), RunScript(""))]
ROLE = Role(
    name="odd",
    summary="",
    inspection=Inspection("odd.count", lambda plan: Count("abc"), State),
    tasks=lambda plan: [Task("odd", changes)],
)
"""


def test_a_role_inspects_by_a_verb(tmp_path: Path) -> None:
    onhost = ONHOST.replace("number: int", "number: int = 0")
    odd(tmp_path, INSPECTED_BY_VERB).with_name("onhost.py").write_text(onhost)
    (own,) = [role for role in all_roles(tmp_path) if role.name == "odd"]
    (task,) = own.tasks(planned(cpu_rig()))
    for parts, number in (({"odd.count": {"number": 3}}, "3"), ({}, "0")):
        state = state_of({"files": {}, "parts": parts, "lines": {}, "unknown": []}, [own])
        assert [each.name for each in task.changes(state, Run(connect=Connect(host="box")))] == [number]
