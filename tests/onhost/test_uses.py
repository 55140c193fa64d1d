"""Who uses the files in a folder, on a played host. tests/store/test_look.py has it on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from llamaherd.layout import UNITS
from llamaherd.onhost.releases import WriteInput, write
from llamaherd.onhost.removal import Use, find_uses, is_within, real_path
from llamaherd.onhost.system import Ended, FailedError
from tests.support.played_host import File
from tests.support.used_host import ID, UsedHost

STORE = "/srv/models"
MODEL = f"{STORE}/org/name/a.gguf"


def used(host: UsedHost, keep: int = 0) -> set[Use]:
    """Return who uses the store."""
    host.files.setdefault(MODEL, File("weights"))
    return {*find_uses(host, STORE, keep)}


@pytest.mark.parametrize(
    ("group", "owner"),
    [
        ("0::/system.slice/llama-chat.service\n", ("unit", "llama-chat.service")),
        (f"0::/system.slice/docker-{ID}.scope\n", ("container", "boxed")),
        (f"0::/system.slice/docker-{'cd' * 32}.scope\n", ("process", "12 less")),
        ("0::/user.slice\n", ("process", "12 less")),
    ],
)
def test_a_process_is_a_units_or_a_containers_or_its_own(group: str, owner: tuple[str, str]) -> None:
    host = UsedHost({})
    host.process("12", cmdline=f"less\0--from\0{MODEL}\0", comm="less\n", cgroup=group)
    assert {(use.kind, use.name, use.path) for use in used(host)} == {(*owner, MODEL)}


def test_a_mapped_file_is_found_by_number_and_name() -> None:
    """A container has another path for it; a file of another name may have its number on another disk."""
    host = UsedHost({}, numbers={MODEL: 77})
    line = "7f00-7f10 r--s 00000000 08:01 {}                     /models/{}\n"
    host.process("12", maps="7f00-7f10 rw-p 0 00:00 0\n" + line.format(77, "a.gguf (deleted)"), comm="server")
    host.process("13", maps=line.format(77, "b.gguf") + line.format(78, "a.gguf"), comm="other")
    assert [use.name for use in used(host)] == ["12 server"]


def test_a_container_that_was_given_a_folder_names_what_it_uses() -> None:
    mount = {"Source": f"{STORE}/org", "Destination": "/m"}
    box = {"Name": "/boxed", "Mounts": [mount], "Args": ["-m", "/m/name/a.gguf"], "Config": {"Env": ["X=/m/b"]}}
    bare = {"Name": "/bare", "Mounts": None, "Args": None, "Config": None}
    found = used(UsedHost({}, described=[box, bare]))
    assert found == {Use("container", "boxed", f"{STORE}/org{end}") for end in ("", "/name/a.gguf", "/b")}


def test_docker_that_does_not_respond_is_no_answer() -> None:
    with pytest.raises(FailedError, match="Docker does not respond"):
        used(UsedHost({}, docker_hangs=True))
    cut = Cut({}, described=[{}])
    with pytest.raises(FailedError, match="is not JSON"):
        used(cut)


class Cut(UsedHost):
    """A host whose Docker prints half of it."""

    def run(self, argv: Sequence[str], **more: Any) -> Ended:
        ended = super().run(argv, **more)
        return replace(ended, out=ended.out[:1]) if argv[:2] == ["docker", "inspect"] else ended


def test_users_with_a_home_elsewhere_start_things_too() -> None:
    host = UsedHost({}, files={"/data/ann/start.sh": File("llama-server -m $HOME/x -m " + MODEL)})
    assert used(host) == {Use("file", "/data/ann/start.sh", MODEL)}


def test_a_program_is_no_text_and_a_large_file_is_no_starter() -> None:
    files = {"/srv/a.sh": File(f"\0{MODEL}"), "/srv/b.sh": File(MODEL + " " * (1024 << 10)), "/srv/c.txt": File(MODEL)}
    assert used(UsedHost({}, files=files)) == set()


def test_our_own_files_are_no_users() -> None:
    files = {"/etc/llamaherd/plan": File(MODEL), "/usr/lib/systemd/system/llamaherd-x.service": File(MODEL)}
    assert used(UsedHost({}, files=files)) == set()


def test_a_release_needs_what_its_plan_names() -> None:
    host = UsedHost({})
    write(WriteInput('{"failed":[]}', json.dumps({"folder": f"{STORE}/org/name"})), host)
    assert used(host, keep=1) == {Use("release", "1", f"{STORE}/org/name")}
    assert used(host) == set()


def test_a_store_that_is_a_link() -> None:
    host = UsedHost({}, links={STORE: "/disk"}, files={f"{UNITS}/llama-chat.service": File("-m /disk/org/a --port 1")})
    host.files["/disk/org/a"] = File("weights")
    assert [use.path for use in find_uses(host, STORE, 0)] == [f"{STORE}/org/a", f"{STORE}/org/a --port 1"]
    assert real_path(host, STORE) == "/disk"
    assert real_path(host, "/none") == ""


def test_a_text_without_an_end_is_cut() -> None:
    host = UsedHost({}, files={"/srv/a.sh": File(f"{MODEL} {'x' * 10_000}")})
    (use,) = used(host)
    assert len(use.path) < 5000


@pytest.mark.parametrize(
    ("text", "within"),
    [("/a/b", True), ("/a/b/c", True), ("/a/b:ro", True), ("/a/bc", False), ("/a/b-c", False), ("/a", False)],
)
def test_what_is_within(text: str, within: bool) -> None:
    assert is_within(text, "/a/b") is within
