"""A gateway on loopback: the real HAProxy, by the configuration that a host is given, and what stands behind it."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from llamaherd.fleet.gateway_snapshot import GatewaySnapshot, gateway_snapshot
from llamaherd.host.state import FileState
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.inventory.yaml_text import Loader
from llamaherd.layout import GATEWAY, GATEWAY_RUN, WAKE_RUN
from llamaherd.lock import Lock, LockedImage
from llamaherd.onhost.gateway import parse_status
from llamaherd.plan import GatewayPlan, Plan, TextFile
from roles.gateway import plan_gateway
from roles.gateway.config import GatewayKeys, certificate, configuration, maps, reader, waker
from tests.support.ours import plan
from tests.support.rigs import ROOT, Declared, changed, cpu_rig, gpu_rig

HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SERVERS_KEY = "sk-servers-canary-77e1"
KEYS = {"tom": "herd-tom-0f3a", "ann": "herd-ann-91bc"}
TALK = ROOT / "templates" / "gateway" / "gateway-talk.py"
REVOKED = "herd-bob-5d22"
"""A key that was somebody's once."""


def key_hashes(keys: Mapping[str, str]) -> dict[str, str]:
    """What maps hold of keys."""
    return {name: hashlib.sha256(key.encode()).hexdigest() for name, key in keys.items()}


class Upstream(ThreadingHTTPServer):
    """A plain server that records what reaches it, and answers slowly, in pieces, or not at all, as it is told.

    It says `late` seconds late whether it is well.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0) -> None:
        self.seen: list[Seen] = []
        self.healthy = self.takes_key = True
        self.late = 0.0
        self.hold = threading.Event()
        self.hold.set()
        self.pieces: list[str] = []
        self.busy = self.most = 0
        self.left = threading.Event()
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Recorder)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def handle_error(self, *_: object) -> None:
        """A client that leaves is noted, and no traceback is printed."""
        self.left.set()

    def stop(self) -> None:
        """End it; whoever connects is refused."""
        self.hold.set()
        self.shutdown()
        self.server_close()


@dataclass(frozen=True)
class Seen:
    """One request as it reached a server."""

    line: str
    headers: dict[str, str]
    body: bytes


class _Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_GET(self) -> None:
        if self.path != "/health":
            self._record(b"")
        time.sleep(self.server.late)
        self._say(200 if self.server.healthy else 503, b'{"status":"ok"}')

    def do_POST(self) -> None:
        self._record(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        with self.server.lock:
            self.server.busy += 1
            self.server.most = max(self.server.most, self.server.busy)
        try:
            self.server.hold.wait(20)
            if self.server.pieces:
                self._stream()
        finally:
            # Before the last word: with that, the gateway sends the next request.
            with self.server.lock:
                self.server.busy -= 1
        if not self.server.pieces:
            self._say(200 if self.server.takes_key else 401, json.dumps({"by": self.server.port}).encode())

    def _record(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(Seen(self.requestline, headers, body))

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in self.server.pieces:
            self.wfile.write(f"{len(piece):x}\r\n{piece}\r\n".encode())
            self.wfile.flush()
            time.sleep(0.15)
        self.wfile.write(b"0\r\n\r\n")

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Herd-Fallback", "a server's own lie")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: what was asked is kept, and read by tests."""


def fleet_of(text: str) -> FleetFile:
    """What a fleet's file says."""
    return FleetFile.model_validate(yaml.load(text, Loader=Loader))


def free_port() -> int:
    """A port of loopback that nobody has just now."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def rig_at(ports: Mapping[str, int], changes: Mapping[str, Any] | None = None) -> Rig:
    """The rig `box`, whose instances listen on these ports; two slots each, and a key that all share."""
    rig: Declared = cpu_rig()
    rig["instances"] = {
        name: {
            "engine": "main",
            "model": "gemma",
            "context": 8192,
            "parallel": 2,
            "port": port,
            "api_key": {"env": "SERVERS_KEY"},
        }
        for name, port in ports.items()
    }
    return Rig.model_validate(changed(rig, changes or {}))


@dataclass
class Running:
    """A gateway that runs: its plan, its folder, and its process."""

    plan: GatewayPlan
    folder: Path
    process: subprocess.Popen[bytes]
    keys: GatewayKeys = field(repr=False)

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def reload(self) -> None:
        """Have it read its configuration anew, as the unit does. A master that has just begun misses a signal."""
        workers = self.log.count(" forked")
        for _ in range(10):
            self.process.send_signal(signal.SIGUSR2)
            with suppress(AssertionError):
                return until(lambda: self.log.count(" forked") > workers, 5)
        raise AssertionError(self.log)

    def ask(
        self,
        path: str = "/v1/chat/completions",
        model: str | None = "coder",
        *,
        key: str | None = KEYS["tom"],
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        method: str = "POST",
        seconds: float = 25,
    ) -> Answer:
        """One request, as a client sends it."""
        said = body if body is not None else json.dumps({"messages": [], "model": model}).encode()
        line = http.client.HTTPConnection("127.0.0.1", self.plan.port, timeout=seconds)
        bearer = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            line.request(method, path, said if method == "POST" else None, {**bearer, **(headers or {})})
            answer = line.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            line.close()

    def raw(self, data: bytes, seconds: float = 1) -> bytes:
        """What it answers to these bytes, until it closes or has said nothing for so long: the client stays."""
        with socket.create_connection(("127.0.0.1", self.plan.port), timeout=5) as line:
            answer = b""
            with suppress(OSError):
                line.sendall(data)
            line.settimeout(seconds)
            with suppress(OSError):
                while part := line.recv(65536):
                    answer += part
            return answer

    def waiting(self, model: str = "coder") -> int:
        """How many requests wait for a server of a model."""
        facts = [line.split("\t") for line in self.talk("status").stdout.splitlines()]
        return next(int(fact[2]) for fact in facts if fact[:2] == ["model", model])

    def talk(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What our program on the host does with it."""
        return subprocess.run(
            [sys.executable, str(TALK), *words],
            env=talk_env(self.folder),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )


def now_of(lines: Iterable[str]) -> GatewaySnapshot:
    """Return what a gateway does, by the lines of the program on its host."""
    return gateway_snapshot(parse_status([line.split("\t") for line in lines]))


def talk_env(folder: Path) -> dict[str, str]:
    """Where our program finds a gateway of this folder."""
    return {"GATEWAY_SOCKET": str(folder / "admin.sock"), "GATEWAY_FOLDER": str(folder)}


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of an error, as OpenAI's clients read it."""
        return str(json.loads(self.body)["error"]["code"])

    @property
    def message(self) -> str:
        """Its sentence, as pages and editors show it to people."""
        return str(json.loads(self.body)["error"]["message"])


def keys_of(plan: GatewayPlan, keys: Mapping[str, str] = KEYS, pem: str | None = None) -> GatewayKeys:
    """Keys of those users that the plan has."""
    users = key_hashes({user.name: keys[user.name] for user in plan.users})
    return GatewayKeys(users, {model.name: SERVERS_KEY for model in plan.models if model.key}, pem)


def write_files(plan: GatewayPlan, keys: GatewayKeys, folder: Path) -> None:
    """All that HAProxy reads, with a socket in the same folder."""
    for file in (configuration(plan, keys), reader(), *waker(plan), *certificate(keys), *maps(plan, keys)):
        text = file.text.replace(str(GATEWAY_RUN), str(folder)).replace(str(WAKE_RUN), str(folder / "wake.sock"))
        (folder / Path(file.path).relative_to(GATEWAY)).write_text(text, encoding="utf-8")


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """What HAProxy itself says to the configuration."""
    assert HAPROXY
    command = [HAPROXY, "-c", "-C", str(folder), "-f", str(folder / "haproxy.cfg")]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def made(text: str, rigs: Sequence[Rig]) -> GatewayPlan:
    """The gateway of a rig."""
    declared = fleet_of(text).gateway
    assert declared
    return plan_gateway(declared, "box", {each.rig: each for each in rigs})


def unit_env(plan: GatewayPlan) -> dict[str, str]:
    """The environment of the unit, beside this process's own."""
    lines = [line.partition("=")[2] for line in plan.unit.text.splitlines() if line.startswith("Environment=")]
    return {**os.environ, **dict(line.split("=", 1) for line in lines)}


@contextmanager
def running(plan: GatewayPlan, folder: Path, keys: GatewayKeys | None = None) -> Iterator[Running]:
    """The gateway, until it is ended."""
    keys = keys or keys_of(plan)
    write_files(plan, keys, folder)
    assert HAPROXY
    command = [HAPROXY, "-W", "-C", str(folder), "-f", str(folder / "haproxy.cfg")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=unit_env(plan), start_new_session=True)
    try:
        deadline = time.monotonic() + 15
        while b"forked" not in (folder / "log").read_bytes():
            assert time.monotonic() < deadline, (folder / "log").read_text(encoding="utf-8")
            time.sleep(0.03)
        yield Running(plan, folder, process, keys)
    finally:
        process.terminate()
        process.wait(10)


def until(true: Any, seconds: float = 15, pause: float = 0.02) -> None:
    """Wait until it is so; `pause` is for what costs much to inspect."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(pause)


HOUSEHOLD = """
gateway:
  on: [box]
  listen: 0.0.0.0
  queue: {wait: 120s, length: 20}
  users:
    tom: {key: {env: TOM_KEY}, streams: 4}
    ann: {key: {env: ANN_KEY}, models: [small]}
  models:
    coder: {serve: [box.chat, duo.reasoner], aliases: [gpt-4o], fallback: small, sticky: session}
    small: {serve: [box.drafter], sticky: user, fallback: last}
    last: {serve: [duo.worker], streams: 1}
"""
"""A gateway before two rigs, with all that there is."""
SECURE = HOUSEHOLD.replace(
    "  listen: 0.0.0.0", "  listen: '::'\n  port: 443\n  tls: {certificate: /c.pem, key: /k.pem}"
)


def gateway_plans() -> tuple[Plan, Plan]:
    """The plan of the rig that has it; and with a certificate, at a port that not everybody may open."""
    box = Rig.model_validate(changed(cpu_rig(), {"instances/chat/parallel": 2}))
    duo = Rig.model_validate(
        changed(
            gpu_rig(),
            {
                f"instances/{name}/{key}": value
                for name in ("reasoner", "worker")
                for key, value in (("listen", "0.0.0.0"), ("api_key", {"env": "CHAT_KEY"}))
            },
        )
    )
    rigs = {"box": box, "duo": duo}
    first, second = (plan(box, Lock(), rigs, fleet=fleet_of(text)) for text in (HOUSEHOLD, SECURE))
    return first, second


def waking_plan() -> Plan:
    """The plan of the rig whose gateway wakes another one."""
    box, duo = (
        Rig.model_validate(cpu_rig()),
        Rig.model_validate(
            changed(
                gpu_rig(),
                {
                    "wake": {"mac": "3C-7C-3F-12-AB-CD"},
                    **{
                        f"instances/{name}/{key}": value
                        for name in ("reasoner", "worker")
                        for key, value in (("listen", "0.0.0.0"), ("api_key", {"env": "CHAT_KEY"}))
                    },
                },
            )
        ),
    )
    return plan(box, Lock(), {"box": box, "duo": duo}, fleet=fleet_of(HOUSEHOLD))


def chatting_plan() -> Plan:
    """The plan of the rig whose gateway has a page that people chat on."""
    text = f"{HOUSEHOLD}  chat: {{image: 'registry.example/open-webui:v0.12.4', user: ann}}\n"
    box, duo = Rig.model_validate(cpu_rig()), Rig.model_validate(gpu_rig())
    lock = Lock(images=(LockedImage(image="registry.example/open-webui:v0.12.4", digest=f"sha256:{'ef' * 32}"),))
    return plan(box, lock, {"box": box, "duo": duo}, fleet=fleet_of(text))


def gateway_of(planned: Plan) -> GatewayPlan:
    """The gateway of a plan."""
    assert planned.gateway
    return planned.gateway


def gateway_files(planned: GatewayPlan, keys: GatewayKeys) -> list[TextFile]:
    """All that lies on a host that is as planned."""
    return [
        configuration(planned, keys),
        reader(),
        *waker(planned),
        *certificate(keys),
        *maps(planned, keys),
        planned.unit,
        planned.talk,
    ]


def as_written(file: TextFile) -> FileState:
    """A file as a host says that it is there."""
    owner = ("0", "root") if file.owner == "root" else ("994", file.owner)
    return FileState(file.mode, owner, 0.0, hashlib.sha256(file.text.encode()).hexdigest())
