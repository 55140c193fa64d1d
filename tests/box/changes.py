"""Changes of the rig that its hosts roll back, and what a run then reports."""

from __future__ import annotations

from collections.abc import Callable

from tests.box.bench import Bench, Declared

REFUSES = "{% for m in messages %}{% if 'colours' in m.content %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
"""A chat template that the engine's own trial of it passes, and no prompt of ours."""

OTHER_LAYERS = ["--override-kv", "gemma3.block_count=int:99"]
"""What the engine reads as an argument, and then cannot load."""

RUN_WAITS = (
    "for _ in $(seq 1200); do for each in $(pgrep python3); do find /proc/$each/fd -lname /run/llamaherd/locks/host;"
    " done 2>/dev/null | grep -q . && break; sleep 0.1; done"
)
"""Waits until a run waits for the lock of changes: its program has the file open. Another program holds the lock."""

KILL_PROGRAM = r"""for each in /proc/[0-9]*; do
    case "$(readlink "$each/exe") $(tr '\0' ' ' <"$each/cmdline")" in
    */python3*' -IS /opt/llamaherd/libexec/onhost/'*'.pyz ') kill -9 "${each#/proc/}" ;;
    esac
done 2>/dev/null"""
"""Kills the program that a run has started on its host; a probation is a unit of the host, and goes on."""
SPEC = "tr '\\0' '\\n' </proc/$(systemctl show -P MainPID llama-chat)/environ | grep ^LLAMAHERD_SPEC="
"""Prints the spec that `chat` was started with."""


def no_answer(rig: Declared) -> None:
    rig["instances"]["chat"]["extra_args"][-1] = REFUSES


def no_load(rig: Declared) -> None:
    rig["instances"]["chat"]["extra_args"] += OTHER_LAYERS


def too_slow(rig: Declared) -> None:
    rig["instances"]["chat"] |= {"context": 4096, "expect": {"decode": 100000}}


def no_load_in_a_container(rig: Declared) -> None:
    rig["instances"]["drafter"]["extra_args"] += " --override-kv tokenizer.ggml.model=str:none"


def no_answer_in_a_container(rig: Declared) -> None:
    rig["instances"]["drafter"]["extra_args"] = ["--cache-ram", "256", "--chat-template", REFUSES]


BAD: dict[str, tuple[str, Callable[[Declared], None], str]] = {
    "it is healthy, and answers no prompt": ("chat", no_answer, "a prompt returns HTTP 400"),
    "it does not load": ("chat", no_load, "was not healthy after"),
    "it is slower than expected": ("chat", too_slow, "and `expect` allows no less than 50000"),
    "a container that does not load": ("drafter", no_load_in_a_container, "was not healthy after"),
    "a container that answers no prompt": ("drafter", no_answer_in_a_container, "a prompt returns HTTP 400"),
}


def declare(bench: Bench, change: Callable[[Declared], None]) -> None:
    rig = bench.rig()
    change(rig)
    bench.declare(rig)


def fails(bench: Bench, name: str, *options: str) -> str:
    """A run ends with 1, and what served before answers; returns what it said."""
    ended = bench.up("--yes", *options)
    assert ended.code == 1, ended.output
    assert "Traceback" not in ended.output
    assert f"llama-{name} serves again as before, spec " in ended.output
    assert bench.answers(name)
    return ended.output


def comes_back(bench: Bench, case: tuple[str, Callable[[Declared], None], str]) -> None:
    """A bad change is rolled back, reported again by the next run, and gone with the next good plan."""
    name, change, why = case
    before = bench.running()
    declare(bench, change)
    fails(bench, name)
    bench.unchanged(before, name)
    back = bench.running()
    # Not again; and it says what was tried, and why not.
    again = bench.up("--yes")
    assert again.code == 1, again.output
    assert f"{name} serves as before: what is declared was tried on 20" in again.output
    assert why in again.output
    assert "`herd up --retry`" in again.output
    assert f"{name} serves as before" in bench.herd("plan", "box").output
    bench.unchanged(back)
    # As before is as declared before: nothing to do.
    bench.declare(bench.rig())
    ended = bench.up("--yes")
    assert (ended.code, ended.changes) == (0, 0), ended.output
    bench.unchanged(back)
