"""An engine is compiled: on a played host where something fails or is killed, and by the real tools."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.host.state import HostState
from llamaherd.layout import BUILD_PATH, BUILD_USER, CACHE
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError, Host
from llamaherd.onhost.verbs import find_verb
from roles.engines import build_changes
from roles.engines.onhost import BuildInput, is_intact, write_stamp
from roles.engines.onhost.compiling import CompileInput, PageInput, SourceInput, compile_engine, listed_flags
from tests.render.pieces import build
from tests.render.plans import CPU, GPU, URL
from tests.support.played_host import File
from tests.support.recording import input_of
from tests.support.service_host import ServiceHost, killed_everywhere
from tests.support.stores import needs_root

WORK, OUT, SOURCES = str(BUILD_PATH), f"{BUILD_PATH}/out", f"{CACHE}/sources"
HOSTILE = "a $(id) `id` \"b\" 'c' ; d\nnext"
ARCHIVE = "an archive"
SHA = hashlib.sha256(ARCHIVE.encode()).hexdigest()
UNUSED = "CMake Warning:\n  Manually-specified variables were not used by the project:\n\n    A\n    B\n\n\n-- Done\n"


@dataclass
class CompileHost(ServiceHost):
    """A host with git, curl, tar, CMake and compilers. What CMake builds prints a version."""

    accounts: set[str] = field(default_factory=lambda: {BUILD_USER})
    files: dict[str, File] = field(
        default_factory=lambda: {"/proc/meminfo": File("MemTotal: 9 kB\nMemAvailable:    3145728 kB\n")}
    )
    top: str = "llama.cpp"
    cached: str = ""
    environments: list[list[str]] = field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        *,
        seconds: float = 30,
        text: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Play a program."""
        words = [*argv]
        if words[0] == "env":
            own = next(at for at, each in enumerate(words[1:], 1) if "=" not in each)
            self.environments.append(words[1:own])
            words = words[own:]
        ended = super().run(words, seconds=seconds, text=text, environment=environment)
        line = " ".join(words)
        if not ended.ok or any(line.startswith(begins) for begins in self.ends):
            return ended
        self._step()
        return self._played(words)

    def _played(self, words: list[str]) -> Ended:
        match words[0].rpartition("/")[2], words[-1]:
            case ("git", "FETCH_HEAD") | ("tar", _):
                self.files[f"{WORK}/source/{self.top}/CMakeLists.txt"] = File("project()")
                self.files[f"{WORK}/source/{self.top}/run"] = File("old", 0o755)
            case "curl", _:
                self.files[words[words.index("-o") + 1]] = File(ARCHIVE)
            case "sha256sum", path:
                found = self.read(path)
                return (
                    Ended(1) if found is None else Ended(0, f"{hashlib.sha256(found.encode()).hexdigest()}  {path}\n")
                )
            case "nproc", _:
                return Ended(0, "8\n")
            case "cmake", _ if "-S" in words:
                self.files[f"{WORK}/tree/CMakeCache.txt"] = File(self.cached)
            case "cmake", _:
                for target in words[words.index("--target") + 1 :]:
                    self.files[f"{WORK}/tree/bin/{target}"] = File(target, 0o755)
            case "llama-server", "--version":
                return Ended(0, "ggml: x\n", 'version: 7 ("abc\\")\nversion: 8\n')
            case "llama-server", "--help":
                return Ended(0, "--port N   the port\n")
            case "llama-server", _:
                return Ended(0, "CUDA0: RTX 3090\n")
            case "c++", _:
                return Ended(0, 'g++ ("Debian") 14\nmore\n')
            case "nvcc", _:
                return Ended(0, "nvcc: NVIDIA\nCuda compilation tools, release 13.0\n")
        return Ended(0)


def engine_of(plan: Any, name: str) -> CompileInput:
    """Return the input of the verb that compiles an engine of a plan."""
    return input_of(build_changes(build(plan, name), HostState())[-1], BuildInput).engine


def sourced(given: CompileInput, **more: Any) -> CompileInput:
    """Return an input with another source."""
    return replace(given, source=replace(given.source, **more))


GIT = sourced(engine_of(GPU, "main"), folder="llama.cpp")
IK = sourced(engine_of(GPU, "ik"), folder="llama.cpp", sha256=SHA)
SENT = sourced(engine_of(CPU, "main"), sha256=SHA)
LOGS = f"/var/lib/llamaherd/work/{SENT.id}"
ARCHIVED = {f"{SOURCES}/{SHA}": File(ARCHIVE)}


def host_with(given: CompileInput, **more: Any) -> CompileHost:
    """Return a host that has the archive that the controller sends."""
    host = CompileHost({}, **more)
    if given.source.is_sent:
        host.files |= {path: File(file.text) for path, file in ARCHIVED.items()}
    return host


def manifest(host: CompileHost) -> dict[str, Any]:
    """Return the manifest."""
    found = json.loads(host.files[f"{OUT}/manifest.json"].text)
    assert isinstance(found, dict)
    return found


def test_a_commit_is_compiled_with_cuda() -> None:
    host = host_with(GIT)
    document = parse_document(dump(GIT).encode())
    find_verb("engines.compiling.compile").run(decode(CompileInput, document), host)
    server = hashlib.sha256(b"llama-server").hexdigest()
    found = manifest(host)
    assert found.pop("seconds") >= 0
    assert found == {
        "id": GIT.id,
        "kind": "llama.cpp",
        "source": {"git": GIT.source.git, "commit": GIT.source.commit},
        "options": dict(GIT.options),
        "compiler": "g++ (Debian) 14",
        "cuda": "Cuda compilation tools, release 13.0",
        "version": "version: 7 (abc)",
        "jobs": 1,
        "sha256": {"llama-fit-params": hashlib.sha256(b"llama-fit-params").hexdigest(), "llama-server": server},
    }
    assert host.files[f"{OUT}/manifest.json"].text.endswith(f', "llama-server": "{server}"}}}}\n')
    assert host.files[f"{OUT}/bin/llama-server"] == File("llama-server", 0o755)
    assert host.files[f"{OUT}/flags"] == File("--port N\n", 0o644, BUILD_USER)
    assert not host.entry(f"{WORK}/failed")
    assert host.index("init") < host.index("fetch", "--", GIT.source.git) < host.index("checkout")
    assert host.has_done("cmake", *(f"-D{name}={value}" for name, value in GIT.options.items()))
    assert {f"CCACHE_DIR={CACHE}/ccache", f"CCACHE_BASEDIR={WORK}"} < set(host.environments[0])
    assert host.environments[0] == host.environments[1]


def test_an_archive_is_fetched_once() -> None:
    host = host_with(IK)
    host.files["/dev/nvidiactl"] = File("")
    compile_engine(IK, host)
    compile_engine(IK, host)
    assert manifest(host)["source"] == {"archive": "ik.tar.gz", "sha256": SHA}
    (curl,) = [each for each in host.done if each[0] == "curl"]
    assert curl[curl.index("--url") + 1] == IK.source.archive
    assert host.names(SOURCES) == [SHA]
    assert not host.entry(f"{OUT}/flags"), "this engine does not list its flags"


def test_an_archive_that_was_sent_is_not_fetched() -> None:
    host = host_with(SENT)
    compile_engine(SENT, host)
    assert manifest(host)["source"] == {"archive": "llama.tar.gz", "sha256": SHA}
    assert not host.has_done("curl")
    assert "cuda" not in manifest(host)
    assert not host.has_done(f"{OUT}/bin/llama-server", "--list-devices")


def test_the_overlay_is_written_as_it_is() -> None:
    given = sourced(SENT, overlay={HOSTILE: HOSTILE, "run": "new"}, archive=HOSTILE, folder="a $(id)")
    host = host_with(given, top="a $(id)")
    compile_engine(replace(given, options={"A": HOSTILE}), host)
    root = f"{WORK}/source/a $(id)"
    assert host.files[f"{root}/{HOSTILE}"] == File(HOSTILE, 0o644, BUILD_USER)
    assert host.files[f"{root}/run"] == File("new", 0o755, BUILD_USER)
    assert host.has_done("cmake", root, f"-DA={HOSTILE}")
    assert not host.has_done("sh")
    assert (manifest(host)["options"], manifest(host)["source"]["archive"]) == ({"A": HOSTILE}, HOSTILE)


@pytest.mark.parametrize(
    ("cores", "available", "jobs"), [("8", 100 << 20, 8), ("8", 2 << 20, 2), ("8", 1, 1), ("", 100 << 20, 1)]
)
def test_there_are_as_many_jobs_as_memory_holds(cores: str, available: int, jobs: int) -> None:
    host = host_with(SENT, ends={"nproc": Ended(0, cores)})
    host.files["/proc/meminfo"] = File(f"MemAvailable: {available} kB\n")
    compile_engine(SENT, host)
    assert manifest(host)["jobs"] == jobs
    assert host.has_done("cmake", "--build", "-j", str(jobs))
    assert f"CMAKE_BUILD_PARALLEL_LEVEL={jobs}" in host.environments[0]


def test_a_host_that_does_not_report_its_memory_gets_one_job() -> None:
    host = host_with(SENT)
    del host.files["/proc/meminfo"]
    compile_engine(SENT, host)
    assert manifest(host)["jobs"] == 1


SAID = Ended(1, "first\n", "the last line\n")
LATE = Ended(TIMED_OUT)
FAILURES: dict[str, tuple[CompileInput, dict[str, Any], str]] = {
    "git": (GIT, {"git": SAID}, f"cannot fetch commit {GIT.source.commit} from {GIT.source.git}: the last line"),
    "late git": (GIT, {"git": LATE}, ": not all of it has come within 60 min"),
    "curl": (IK, {"curl": SAID}, f"cannot fetch {IK.source.archive}: the last line"),
    "curl without words": (IK, {"curl": Ended(1)}, f"cannot fetch {IK.source.archive}: "),
    "another archive": (
        SENT,
        {"sha256sum": Ended(0, f"{'0' * 64}  x\n")},
        f"llama.tar.gz has sha256 {'0' * 64}, but the inventory declares {SHA}",
    ),
    "no archive": (SENT, {"tar": SAID}, "llama.tar.gz is no archive that tar can read"),
    "configure": (
        SENT,
        {"cmake -S": SAID},
        f"CMake cannot configure it; the log is {LOGS}/configure.log",
    ),
    "options": (SENT, {"cmake -S": Ended(0, UNUSED)}, "this engine does not have these CMake options: A B"),
    "compile": (
        SENT,
        {"cmake --build": SAID},
        f"it does not compile; the log is {LOGS}/build.log",
    ),
    "version": (SENT, {f"{OUT}/bin/llama-server --version": SAID}, "the server that was built does not start; see "),
    "driver": (GIT, {f"{OUT}/bin/llama-server --list": SAID}, "but its server finds no CUDA device: is the driver"),
    "no CUDA": (IK, {"cmake -S": Ended(0, "CUDA not found\n")}, "CUDA 13.0 was not found, so that the build is for"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_has_a_reason(case: str) -> None:
    given, ends, why = FAILURES[case]
    host = host_with(given, ends=ends)
    with pytest.raises(FailedError) as caught:
        compile_engine(given, host)
    assert why in caught.value.message
    assert host.files[f"{WORK}/failed"] == File(f"{caught.value.message}\n", 0o644, BUILD_USER)
    assert not host.entry(f"{OUT}/manifest.json")
    assert [each for each in host.names(SOURCES) if each != SHA] == []


def test_an_archive_that_is_another_is_removed() -> None:
    host = host_with(SENT)
    host.files[f"{SOURCES}/{SHA}"] = File("another")
    with pytest.raises(FailedError, match="has sha256"):
        compile_engine(SENT, host)
    assert host.names(SOURCES) == []


def test_a_source_without_cmake_is_named() -> None:
    with pytest.raises(FailedError, match=r"there is no CMakeLists\.txt in folder 'other' of the source"):
        compile_engine(sourced(SENT, folder="other"), host_with(SENT))


def test_an_option_that_ggml_reads_and_does_not_declare_is_unknown() -> None:
    host = host_with(SENT, cached="GGML_LTO:BOOL=ON\nGGML_OLD:UNINITIALIZED=ON\nOTHER:UNINITIALIZED=1\n")
    with pytest.raises(FailedError, match=r"these CMake options: GGML_OLD$"):
        compile_engine(SENT, host)


@pytest.mark.parametrize("device", ["", "/dev/nvidiactl", "/dev/dxg"])
def test_an_engine_that_lists_no_devices_needs_one(device: str) -> None:
    host = host_with(IK)
    if device:
        host.files[device] = File("")
        compile_engine(IK, host)
        assert manifest(host)["cuda"]
    else:
        with pytest.raises(FailedError, match="there is no CUDA device on this host"):
            compile_engine(IK, host)


def test_a_full_disk_is_the_reason_though_it_cannot_be_written_down() -> None:
    host = host_with(SENT, full=WORK)
    with pytest.raises(FailedError, match="No space left on device"):
        compile_engine(sourced(SENT, overlay={"a": "b"}), host)


def test_a_killed_build_is_made_again() -> None:
    given = sourced(SENT, overlay={"a": "b"})
    hosts = killed_everywhere(lambda: host_with(given), lambda host: compile_engine(given, host))
    assert len(hosts) > 10
    for host in hosts:
        assert manifest(host)["sha256"]
        assert not host.entry(f"{WORK}/failed")


def test_flags_are_listed_without_what_they_mean() -> None:
    help_ = (
        "usage: llama-server [options]\n\n"
        "-h,    --help, --usage                  print usage and exit\n"
        "--port PORT   the port\n"
        "-e\n"
        "--old                                   argument has been removed\n"
        "  --indented no flag\n"
        "--a-b N  -1 = all   more\n"
    )
    assert listed_flags(help_) == "-h,--help,--usage\n--port PORT\n-e\n--a-b N  -1 = all\n"
    assert len(listed_flags("--a\n" * 30_000)) == 64_000


def test_a_plan_with_a_url_names_it() -> None:
    assert engine_of(URL, "main").source.archive.startswith("https://")


# --- the real tools -----------------------------------------------------------------------------------------

SERVER = r"""
#include <stdio.h>
#include <string.h>
#include "overlaid.h"
int main(int count, char **words) {
    if (!strcmp(words[1], "--version")) fprintf(stderr, "version: 7 (%s)\n", OVERLAID);
    else printf("usage:\n-h, --help   print usage\n--port N     the port\n");
    return 0;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.13)
project(engine C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
option(KNOWN "" OFF)
add_executable(llama-server server.c)
file(WRITE "${CMAKE_BINARY_DIR}/overlaid.h" "#define OVERLAID \\"${KNOWN}\\"\\n")
target_include_directories(llama-server PRIVATE "${CMAKE_BINARY_DIR}")
"""


def git(folder: Path, *words: str) -> str:
    """Run git there."""
    own = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", "-C", folder, *own, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def commit(tmp_path: Path) -> SourceInput:
    """Return a commit of a small engine."""
    (tmp_path / "git" / "a folder").mkdir(parents=True)
    (tmp_path / "git" / "a folder" / "server.c").write_text(SERVER)
    (tmp_path / "git" / "a folder" / "CMakeLists.txt").write_text("to be overlaid")
    git(tmp_path / "git", "init", "-q")
    git(tmp_path / "git", "add", ".")
    git(tmp_path / "git", "commit", "-qm", "a")
    head = git(tmp_path / "git", "rev-parse", "HEAD").strip()
    overlay = {"CMakeLists.txt": PROJECT}
    return SourceInput(f"file://{tmp_path}/git", head, "", False, "", "a folder", overlay, 60)


def real_input(tmp_path: Path, source: SourceInput, **options: str) -> CompileInput:
    """Return an input whose folders are the test's."""
    work, cache = tmp_path / "work", tmp_path / "cache"
    work.mkdir()
    (cache / "sources").mkdir(parents=True)
    return CompileInput(
        id="llama.cpp-1",
        kind="llama.cpp",
        source=source,
        options={"CMAKE_BUILD_TYPE": "Release", **options},
        targets=("llama-server",),
        bytes_per_job=1 << 30,
        cuda="",
        nvcc="",
        lists_flags=True,
        lists_devices=False,
        work=str(work),
        cache=str(cache),
        user="root",
    )


def stamp_by_stat(home: Path) -> str:
    """Return the stamp of a build as earlier versions wrote it, with `stat`: hosts have such stamps."""
    text = "cd \"$1\" && stat -c '%n %a %u' . bin && stat -c '%n %a %u %s %.Y %.Z %i' manifest.json bin/*"
    run = ["sh", "-c", text, "sh", str(home)]
    return subprocess.run(run, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


@needs_root
def test_a_real_build_is_what_the_inspection_recognizes(tmp_path: Path, commit: SourceInput) -> None:
    host = Host(print, print)
    given = real_input(tmp_path, commit, KNOWN="a 'b' $(id)")
    compile_engine(given, host)
    home = tmp_path / "work" / "out"
    found = json.loads((home / "manifest.json").read_text())
    assert found["version"] == "version: 7 (a 'b' $(id))"
    assert found["options"]["KNOWN"] == "a 'b' $(id)"
    assert (home / "flags").read_text() == "-h,--help\n--port N\n"
    assert is_intact(str(home), host)
    write_stamp(str(home), host)
    assert (home / ".stamp").read_text() == stamp_by_stat(home)
    assert (home / ".stamp").read_text().count("\n") == 4
    (home / "bin" / "llama-server").write_text("another")
    assert not is_intact(str(home), host)


@needs_root
@pytest.mark.parametrize("name", ["index.html", "other.html"])
def test_a_real_page_is_where_the_build_takes_it_from(tmp_path: Path, commit: SourceInput, name: str) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / name).write_text("hello")
    archive = tmp_path / "dist.tar.gz"
    subprocess.run(["tar", "-C", tmp_path / "page", "-czf", archive, "."], check=True)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    given = real_input(tmp_path, replace(commit, page=PageInput(f"file://{archive}", sha256)), KNOWN="x")
    if name == "index.html":
        compile_engine(given, Host(print, print))
        there = tmp_path / "work/source/a folder/tools/ui/dist/index.html"
        assert there.read_text() == "hello"
    else:
        with pytest.raises(FailedError, match=r"is no archive of a page: it has no index\.html"):
            compile_engine(given, Host(print, print))


@needs_root
def test_a_page_with_another_hash_is_not_built_in(tmp_path: Path, commit: SourceInput) -> None:
    (tmp_path / "dist.tar.gz").write_bytes(b"x")
    wrong = PageInput(f"file://{tmp_path}/dist.tar.gz", "0" * 64)
    with pytest.raises(FailedError, match=r"dist\.tar\.gz has sha256 .*, but the lock has 0000"):
        compile_engine(real_input(tmp_path, replace(commit, page=wrong)), Host(print, print))
    assert list((tmp_path / "cache" / "sources").iterdir()) == []


@needs_root
def test_a_real_archive_with_an_unknown_option(tmp_path: Path, commit: SourceInput) -> None:
    archive = tmp_path / "a.tar.gz"
    subprocess.run(["tar", "-C", tmp_path / "git", "-czf", archive, "a folder"], check=True)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    source = replace(commit, git="", commit="", archive=f"file://{archive}", sha256=sha256)
    given = real_input(tmp_path, source, UNKNOWN="1", OTHER="2")
    with pytest.raises(FailedError, match=r"this engine does not have these CMake options: OTHER UNKNOWN$"):
        compile_engine(given, Host(print, print))
    assert [each.name for each in (tmp_path / "cache" / "sources").iterdir()] == [sha256]
    assert "CMake options" in (tmp_path / "work" / "failed").read_text()


@needs_root
@pytest.mark.parametrize("name", ["server.c", "CMakeLists.txt"])
def test_a_real_source_that_does_not_compile(tmp_path: Path, commit: SourceInput, name: str) -> None:
    source = replace(commit, overlay={**commit.overlay, name: "nonsense("})
    given = real_input(tmp_path, source)
    why = "it does not compile" if name == "server.c" else "CMake cannot configure it"
    with pytest.raises(FailedError, match=why):
        compile_engine(given, Host(print, print))
    log = "build.log" if name == "server.c" else "configure.log"
    assert "rror" in (tmp_path / "work" / log).read_text()
