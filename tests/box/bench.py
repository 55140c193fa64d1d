"""The bench of the box tests: a rig to declare and change, and the commands under test, run as a user runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from box import downloads
from box.cli import CACHE, ROOT, TINY_MOE
from box.compiling import OPTIONS
from box.host import BoxHost
from tests.box.slot import WITH_IK
from tests.support.envelope import the_rig

Declared = dict[str, Any]

UNIT = "/etc/systemd/system/llama-chat.service"
"""The unit file of `chat`."""

# What a git checkout of ik_llama.cpp has and its archive lacks.
BUILD_INFO = """\
set(BUILD_NUMBER 0)
set(BUILD_COMMIT "67268c8fd")
set(BUILD_COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
set(BUILD_TARGET "${CMAKE_SYSTEM_PROCESSOR}")
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/common/build-info.cpp.in ${CMAKE_CURRENT_SOURCE_DIR}/common/build-info.cpp)
"""
PORTS = {"chat": 8080, "drafter": 8081, "ik-chat": 8082}
PYINFRA = [str(Path(sys.executable).parent / "pyinfra"), "inventory.py", "deploy.py", "-y"]
HERD = str(Path(sys.executable).parent / "herd")


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, all that it printed, and how long it took."""

    code: int
    output: str
    seconds: float

    @property
    def changes(self) -> int:
        """How many operations changed something, by pyinfra's own table, which comes where there was anything to do."""
        if "Grand total" not in self.output and ": up to date, nothing to do\n" in self.output:
            return 0
        total = re.search(r"Grand total +(\d+) +(\S+) +(\S+) +(\S+)", self.output)
        assert total, self.output
        operations, succeeded, failed, unchanged = (0 if count == "-" else int(count) for count in total.groups())
        assert operations == succeeded + failed + unchanged, total[0]
        return succeeded + failed


def ik() -> Declared:
    """The other engine. The kernels of all pairs of cache types are most of its compile time."""
    return {
        "kind": "ik_llama.cpp",
        "source": {
            "archive": str(CACHE / downloads.IK_LLAMA_CPP.file),
            "sha256": downloads.IK_LLAMA_CPP.sha256,
            "folder": "ik_llama_cpp_python-0.1.5/vendor/ik_llama.cpp",
            "overlay": {"common/cmake/build-info-gen-cpp.cmake": BUILD_INFO},
        },
        "options": {"GGML_IQK_FA_ALL_QUANTS": False, **OPTIONS},
    }


def second(main: Declared) -> Declared:
    """Another build of the first engine, by an option that is off anyway: the cache of compilers has all of it."""
    return {**deepcopy(main), "options": {**main["options"], "LLAMA_SANITIZE_ADDRESS": False}}


@dataclass(frozen=True)
class Bench:
    """The host, and the folder that its inventory lies in."""

    host: BoxHost
    folder: Path

    @property
    def inventory(self) -> Path:
        """The rig's YAML."""
        return self.folder / "box.yaml"

    @property
    def key_file(self) -> Path:
        """The API key of `chat`."""
        return self.folder / "api-key"

    def rig(self) -> Declared:
        """The rig as it shall be when no test has changed it: the box that everyone gets, and a second engine."""
        rig: Declared = yaml.safe_load((ROOT / "inventory" / "box.yaml").read_text())
        rig["connect"] |= {
            "port": self.host.port,
            "key": str(self.host.key),
            "known_hosts": str(self.host.known_hosts),
        }
        # A container has the processor of its machine.
        rig["host"]["cpu"]["amx"] = "amx_int8" in Path("/proc/cpuinfo").read_text().split()
        source = rig["engines"]["main"]["source"]
        source["archive"] = str(CACHE / downloads.LLAMA_CPP.file)
        rig["engines"]["main"]["options"] = {**OPTIONS}
        rig["engines"]["ik"] = ik() if WITH_IK else second(rig["engines"]["main"])
        rig["models"]["gemma-3-270m"]["file"] = str(CACHE / downloads.GEMMA.file)
        rig["models"]["tiny-moe"]["file"] = str(TINY_MOE)
        rig["instances"]["chat"]["api_key"] = {"file": str(self.key_file)}
        rig["instances"]["ik-chat"] = {
            "engine": "ik",
            "model": "gemma-3-270m",
            "context": 4096,
            "port": PORTS["ik-chat"],
            # Those of `chat`: without its template, this model returns markers. ik_llama.cpp saves no prompts in RAM.
            "extra_args": rig["instances"]["chat"]["extra_args"][-2 if WITH_IK else 0 :],
        }
        return deepcopy(rig)

    def declare(self, rig: Declared) -> None:
        """Make this the inventory."""
        self.inventory.write_text(yaml.safe_dump(rig, sort_keys=False))

    def deploy(self, *options: str, **environment: str) -> Ended:
        """The pyinfra command."""
        return run([*PYINFRA, *options], self.environment(environment))

    def up(self, *options: str, **environment: str) -> Ended:
        """The same run, through `herd up`."""
        return run([HERD, "up", "-v", *options], self.environment(environment))

    def herd(self, *arguments: str, **environment: str) -> Ended:
        """Any other `herd` command."""
        return run([HERD, *arguments], self.environment(environment))

    def plan(self) -> Declared:
        """The plan as machines read it: what is warned of goes to the other stream, and depends on this machine."""
        command = [HERD, "show", "box", "--json"]
        said = subprocess.run(command, cwd=ROOT, env=self.environment({}), stdout=subprocess.PIPE, check=True).stdout
        plan: Declared = the_rig(said.decode())
        return plan

    def killed(
        self, by: signal.Signals, when: Callable[[str], bool], argv: Sequence[str] = PYINFRA, **environment: str
    ) -> Ended:
        """Start the deployment, and send a signal to all its processes at the line that `when` is true for.

        Fail if there is no such line within ten minutes.
        """
        began = time.monotonic()
        process = subprocess.Popen(
            # Who runs tests in the background may have Ctrl-C ignored, and that is inherited.
            ["env", "--default-signal=INT", *argv],
            cwd=ROOT,
            env=self.environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout
        lines = []
        longest = threading.Timer(600, os.killpg, (process.pid, signal.SIGKILL))
        longest.start()
        try:
            for line in process.stdout:
                lines.append(line)
                if when(line):
                    os.killpg(process.pid, by)
                    break
            else:
                raise AssertionError("it ended before it could be killed:\n" + "".join(lines))
        finally:
            longest.cancel()
        sent = time.monotonic()
        try:
            rest, _ = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{time.monotonic() - sent:.0f} s after {by.name} it still runs") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode != 0, "".join(lines) + rest
        return Ended(process.returncode, "".join(lines) + rest, time.monotonic() - began)

    def finishes(self, **environment: str) -> None:
        """The next run succeeds, and the one after it changes nothing."""
        ended = self.deploy(**environment)
        assert ended.code == 0, ended.output
        again = self.deploy(**environment)
        assert (again.code, again.changes) == (0, 0), again.output

    def repair(self) -> None:
        """One run, which finds something to do and does it."""
        ended = self.deploy()
        assert ended.code == 0, ended.output
        assert ended.changes > 0, ended.output

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """What a user's shell would have, and this inventory."""
        mine = {"HERD_INVENTORY": str(self.inventory), "PYINFRA_PROGRESS": "off", "NO_COLOR": "1"}
        return {**{name: value for name, value in os.environ.items() if name != "HF_TOKEN"}, **mine, **more}

    def sh(self, script: str, *, check: bool = True) -> str:
        """A shell script inside, as root, past SSH and past everything under test."""
        return self.host.exec("sh", "-c", script, check=check).strip()

    def sessions(self, since: str) -> int:
        """How many commands were run over SSH since then, by the journal, once that has all that was said until now."""
        self.sh('logger -t counted "$$"; until journalctl -q -t counted -o cat | grep -qx "$$"; do sleep 0.05; done')
        return int(self.sh(f"journalctl --since=@{since} -t sshd-session -t sshd | grep -c 'Starting session'"))

    def restore(self) -> None:
        """Deploy from a clean slate, short of engines and models: what a failed test has left must not matter."""
        self.sh(
            "systemctl stop 'llama-*.service' 'llamaherd-build-*.service'; rm -f /etc/systemd/system/llama-*.service"
            " /etc/systemd/system/llamaherd-resume-*;"
            " systemctl daemon-reload; systemctl start docker; docker rm -f $(docker ps -aq); "
            "rm -rf /etc/llamaherd/compose/* /var/lib/llamaherd/kept /var/lib/llamaherd/refused"
            " /var/lib/llamaherd/paused",
            check=False,
        )
        self.declare(self.rig())
        self.deploy()

    def running(self) -> dict[str, str]:
        """Which process each instance is now: a restart gives another."""
        units = {name: self.sh(f"systemctl show -P MainPID llama-{name}") for name in ("chat", "ik-chat")}
        drafter = self.sh("docker inspect -f '{{.Id}} {{.State.StartedAt}}' llama-drafter 2>&1", check=False)
        return units | {"drafter": drafter}

    def unchanged(self, before: Mapping[str, str], *but: str) -> None:
        """No instance is another process than before, other than those named, each of which is."""
        now = self.running()
        assert [name for name in now if now[name] != before[name]] == sorted(but)

    def ask(self, name: str, path: str, data: str = "", key: str = "", *, stream: bool = False) -> tuple[int, str]:
        """Ask an instance by curl, on the host, past everything under test: the status and the body."""
        header = f"-H 'Authorization: Bearer {key}'" if key else ""
        body = f"-H 'Content-Type: application/json' -d '{data}'" if data else ""
        # -N: as it comes
        out = self.sh(
            f"curl -s {'-N' if stream else ''} -m 300 {header} {body} -w '\\n%{{http_code}}' "
            f"http://127.0.0.1:{PORTS[name]}{path}",
            check=False,
        )
        answer, _, status = out.rpartition("\n")
        return int(status), answer

    def key(self) -> str:
        """The API key of `chat`."""
        return self.key_file.read_text().strip()

    def answers(self, name: str) -> str:
        """What an instance says to a greeting."""
        data = '{"messages":[{"role":"user","content":"Hello"}],"max_tokens":16}'
        status, body = self.ask(name, "/v1/chat/completions", data, self.key() if name == "chat" else "")
        assert status == 200, f"{name}: {status} {body}"
        said: str = yaml.safe_load(body)["choices"][0]["message"]["content"]
        return said

    def mapped(self, name: str) -> str:
        """The model's file that an instance has in memory: its inode, and whether it has been deleted since."""
        pid = "docker inspect -f '{{.State.Pid}}'" if name == "drafter" else "systemctl show -P MainPID"
        return self.sh(f"awk '/gguf/ {{print $5, $7}}' /proc/$({pid} llama-{name})/maps | sort -u")

    def state(self) -> str:
        """All that a deployment may change, and what runs: the same text means that nothing was touched."""
        folders = "/opt/llamaherd /etc/llamaherd /etc/systemd/system /var/lib/llamaherd/models"
        files = self.sh(f"find {folders} -printf '%p %y %m %U %s %T@ %C@\\n' | sort")
        hashes = self.sh("find /etc/llamaherd /etc/systemd/system -type f -exec sha256sum {} + | sort")
        return "\n".join([files, hashes, *(f"{name} {process}" for name, process in self.running().items())])


def run(argv: list[str], environment: Mapping[str, str]) -> Ended:
    """Run a command from the repository's root, as the README says."""
    began = time.monotonic()
    ended = subprocess.run(
        argv,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, time.monotonic() - began)
