"""What is inspected of builds: on a played host, and of folders of this machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from llamaherd.host.state import EnginesState
from llamaherd.layout import BUILDS, CACHE, WORK
from llamaherd.onhost.document import DocumentError, decode, encode
from llamaherd.onhost.system import TIMED_OUT, Ended, UnknownStateError
from roles.engines import BuiltState, inspection_input, state_parts
from roles.engines.onhost import MOST_FLAGS, BuildQuery, Found, InspectInput, inspect, stamp_of, write_stamp
from tests.render.plans import CPU
from tests.support.inspected_host import RootedHost
from tests.support.played_host import File
from tests.support.recording import InspectedHost

HOSTILE = "a $(id) `id` \"b\" 'c'\n; d"
BUILD = BuildQuery("llama.cpp-1", ("llama-server",), flags=False)
HOME = f"{BUILDS}/llama.cpp-1"
SERVER = hashlib.sha256(b"llama-server").hexdigest()


def ask(build: BuildQuery = BUILD, *sources: str) -> InspectInput:
    return InspectInput((build,), sources)


def manifest(**sums: str) -> str:
    return json.dumps({"sha256": sums})


def built(**files: str) -> InspectedHost:
    """Return a host with a finished build."""
    texts = {"manifest.json": manifest(**{"llama-server": SERVER}), "bin/llama-server": "llama-server"} | files
    host = InspectedHost({})
    host.files = {f"{HOME}/{name}": File(text) for name, text in texts.items()}
    write_stamp(HOME, host)
    host.done.clear()
    return host


def stage(host: InspectedHost, build: BuildQuery = BUILD) -> str | None:
    return inspect(ask(build), host).builds.get(build.id)


def test_a_build_with_its_stamp_is_done_and_no_program_is_started() -> None:
    host = built()
    assert stage(host) == "done"
    assert host.done == []


def test_a_build_whose_files_have_changed_is_compared_with_its_hashes() -> None:
    host = built()
    host.files[f"{HOME}/bin/llama-server"].mode = 0o755
    assert stage(host) == "intact"
    host.files[f"{HOME}/bin/llama-server"].text = "another"
    assert stage(host) == "damaged"
    added = built()
    added.files[f"{HOME}/bin/{HOSTILE}"] = File("x")
    assert stage(added) == "intact"
    without = built()
    without.remove(f"{HOME}/.stamp")
    assert stage(without) == "intact"
    assert host.done == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", '{"sha256": {}}', '{"sha256": []}', manifest(**{"llama-server": "0" * 64})),
        *(manifest(**{"\0": SERVER}), manifest(**{"\ud800": SERVER}), manifest(missing=SERVER)),
        '{"sha256": {"llama-server": 3}}',
    ],
)
def test_a_manifest_that_vouches_for_nothing(text: str) -> None:
    host = built()
    host.files[f"{HOME}/manifest.json"].text = text
    host.remove(f"{HOME}/.stamp")
    assert stage(host) == "damaged"


@pytest.mark.parametrize("missing", ["manifest.json", "bin/llama-server"])
def test_a_build_that_lacks_something_is_not_finished(missing: str) -> None:
    host = built()
    host.remove(f"{HOME}/{missing}")
    assert stage(host) is None
    host.files[f"{WORK}/llama.cpp-1/out/manifest.json"] = File("{}")
    assert stage(host) == "built"


@pytest.mark.parametrize(
    ("active", "found"), [("active", "building"), ("reloading", "building"), ("failed", None), ("inactive", None)]
)
def test_units_of_unfinished_builds_are_queried_at_once(active: str, found: str | None) -> None:
    unit = "llamaherd-build-{}.service"
    shown = "\n\n".join(f"Id={unit.format(name)}\nActiveState={active}" for name in ("a", "b"))
    host = InspectedHost({}, ends={"systemctl show": Ended(0, f"{shown}\n\nId=other.service\nActiveState=active\n")})
    given = InspectInput(tuple(BuildQuery(name, (), flags=False) for name in ("a", "b")), ())
    assert inspect(given, host).builds == ({"a": found, "b": found} if found else {})
    assert host.done == [["systemctl", "show", "-p", "Id,ActiveState", unit.format("a"), unit.format("b")]]


def test_a_systemd_that_does_not_respond_is_unknown() -> None:
    host = InspectedHost({}, ends={"systemctl": Ended(TIMED_OUT)})
    host.folders.add("/run/systemd/system")
    with pytest.raises(UnknownStateError):
        inspect(ask(), host)


def test_flags_and_sources() -> None:
    host = built(flags="--port N\u00e4\n" + "x" * MOST_FLAGS)
    host.files[f"{CACHE}/sources/ab"] = File("archive")
    host.folders.add(f"{CACHE}/sources/cd")
    given = ask(BuildQuery("llama.cpp-1", ("llama-server",), flags=True), "ab", "cd", "ef")
    found = inspect(given, host)
    assert found.sources == ("ab",)
    (text,) = found.flags.values()
    assert text.startswith("--port N\ufffd\ufffd\n")
    assert len(text) <= MOST_FLAGS + 1  # a played host counts characters
    assert inspect(ask(BuildQuery("none", (), flags=True)), host).flags == {}
    assert inspect(ask(), host).flags == {}


def test_the_state_of_a_host() -> None:
    builds, built = state_parts(Found({"a": "done"}, {"a": "--port N  the port\n"}, ("ab",)))
    assert builds == EnginesState({"a": "done"})
    assert built == BuiltState({"a": ((("--port",), 1),)}, {"ab"})
    assert inspection_input(CPU.model_copy(update={"builds": ()})) is None
    asked = inspection_input(CPU)
    assert asked
    assert [each.id for each in asked.builds] == [each.id for each in CPU.builds]


def test_a_stage_that_there_is_not_is_refused() -> None:
    with pytest.raises(DocumentError):
        decode(Found, {"builds": {"a": "finished"}})
    assert decode(Found, encode(Found({"a": "intact"}))) == Found({"a": "intact"})


@pytest.mark.usefixtures("starts_processes")
def test_a_real_build(tmp_path: Path) -> None:
    host = RootedHost(tmp_path)
    host.put(f"{HOME}/manifest.json", manifest(**{"llama-server": SERVER, "libggml.so": SERVER}))
    server = host.put(f"{HOME}/bin/llama-server", "llama-server")
    library = host.put(f"{HOME}/bin/libggml.so.1", "llama-server")
    (library.parent / "libggml.so").symlink_to("libggml.so.1")
    host.put(f"{HOME}/.stamp", stamp_of(HOME, host))
    assert inspect(ask(), host).builds == {"llama.cpp-1": "done"}
    server.write_text("llama-server")  # its time is new
    assert inspect(ask(), host).builds == {"llama.cpp-1": "intact"}
    library.write_text("another")
    assert inspect(ask(), host).builds == {"llama.cpp-1": "damaged"}
    library.unlink()
    assert inspect(ask(), host).builds == {"llama.cpp-1": "damaged"}
    server.unlink()
    server.symlink_to("/nowhere")
    assert inspect(ask(), host).builds == {}
    assert not [each for each in host.ran if each[0] != "systemctl"]
