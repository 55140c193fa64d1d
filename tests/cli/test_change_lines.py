"""The screen of changes: golden at 80 and 100 columns and in a pipe, with and without colours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from llamaherd.cli.rigs import change_row, render_rows
from llamaherd.pipeline.diff import Causes, with_causes
from llamaherd.role.changes import Change, Downtime, RunScript
from llamaherd.role.values import ValueChange

UNIT = "/etc/systemd/system/llama-chat.service"
HOW = RunScript("")
KV = (ValueChange("--cache-type-k", "f16", "q8_0"), ValueChange("--cache-type-v", "f16", "q8_0"))
REASONS = (
    f"{UNIT} has another text",
    "its settings differ: spec ea3d36a7a072 runs, dde71740bb7c is planned",
    f"{UNIT} has changed since it was started",
    "its arguments are not the declared ones",
    "it has other variables than the declared ones: LLAMAHERD_SPEC",
)
RESTART = Change("restart", "server", "llama-chat", REASONS, HOW, away=Downtime(12, measured=True), values=KV)
SEVERAL = (
    Change("install", "packages", "ccache, cmake, git, ninja-build", ("not installed",), HOW),
    Change("send", "source", "llama.tar.gz", (f"the host has no source with sha256 {'ab' * 32}",), HOW),
    RESTART,
    Change("create", "server", "llama-embed", ("there is no such unit",), HOW),
    Change(
        "update", "programs", "/opt/llamaherd/libexec/started", ("/opt/llamaherd/libexec/started is not there",), HOW
    ),
    Change(
        "restart",
        "server",
        "llama-vision",
        ("/a is not there",),
        HOW,
        values=(
            ValueChange("build", "llama.cpp-66ca571ae125", "llama.cpp-254c2e111fca"),
            ValueChange("--model", "/models/q/aa/qwen-Q4_K_M.gguf", "/models/q/bb/qwen-Q4_K_M.gguf"),
            ValueChange("--mmproj", None, "/models/q/bb/mmproj.gguf"),
            ValueChange("--mlock", "", None),
        ),
        away=Downtime(41.6, measured=False, beside=True),
    ),
    Change("stop", "server", "llama-old", ("it is not declared",), HOW),
    Change("reboot", "host", "attic", ("driver 580.95 is loaded by a reboot alone",), HOW),
)

ONE_KEY = {
    80: """\
  ± chat  --cache-type-k f16 → q8_0, --cache-type-v f16 → q8_0, downtime about
          12 s (measured at its last start)
""",
    100: """\
  ± chat  --cache-type-k f16 → q8_0, --cache-type-v f16 → q8_0,
          downtime about 12 s (measured at its last start)
""",
    None: """\
  ± chat  --cache-type-k f16 → q8_0, --cache-type-v f16 → q8_0, downtime about 12 s (measured at its last start)
""",
}
FLEET = {
    80: """\
  + packages ccache, cmake, git, ninja-build  not installed
  + source llama.tar.gz  the host has no source with sha256 abababab…
  ± chat  --cache-type-k f16 → q8_0, --cache-type-v f16 → q8_0, downtime about
          12 s (measured at its last start)
  + embed  there is no such unit
  ~ programs started  started is not there
  ± vision  --model aa/qwen-Q4_K_M.gguf → bb/qwen-Q4_K_M.gguf,
            + --mmproj mmproj.gguf, - --mlock, downtime about 42 s (by the size
            of its model), or 0 s if both versions fit side by side
  - old  it is not declared, stop
  ± host attic  driver 580.95 is loaded by a reboot alone, reboot
""",
    100: """\
  + packages ccache, cmake, git, ninja-build  not installed
  + source llama.tar.gz  the host has no source with sha256 abababab…
  ± chat  --cache-type-k f16 → q8_0, --cache-type-v f16 → q8_0,
          downtime about 12 s (measured at its last start)
  + embed  there is no such unit
  ~ programs started  started is not there
  ± vision  --model aa/qwen-Q4_K_M.gguf → bb/qwen-Q4_K_M.gguf, + --mmproj mmproj.gguf, - --mlock,
            downtime about 42 s (by the size of its model), or 0 s if both versions fit side by side
  - old  it is not declared, stop
  ± host attic  driver 580.95 is loaded by a reboot alone, reboot
""",
}


def shown(changes: tuple[Change, ...], width: int | None, causes: tuple[Causes, ...] = ()) -> Iterator[str]:
    return render_rows([change_row(*each) for each in with_causes(changes, causes)], width)


@pytest.mark.parametrize("width", [80, 100, None])
def test_one_changed_key(width: int | None) -> None:
    lines = [*shown((RESTART,), width)]
    assert "".join(f"{line}\n" for line in lines) == ONE_KEY[width]
    assert len(lines) + len(["attic: 1 change"]) <= 4


@pytest.mark.parametrize("width", [80, 100])
def test_many_changes(width: int) -> None:
    assert "".join(f"{line}\n" for line in shown(SEVERAL, width)) == FLEET[width]
    assert max(len(line) for line in shown(SEVERAL, width)) <= width
