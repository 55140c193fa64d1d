"""CUDA and container toolkit on a real Debian: real apt, systemd and Docker. Faked is what NVIDIA's packages hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from llamaherd.host.program import packed_program
from roles.container_runtime import PACKAGES
from tests.box.bench import PYINFRA, Bench, Declared, Ended, run
from tests.support.apt_repository import AptRepository
from tests.support.cdi import container_toolkit
from tests.support.deb import Package

UUID = "GPU-5c1d2e7a-0b1f-4c0e-9a55-3f1f0a7c2b10"
NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release {0}, V{0}.88'\n"
# The roles under test, before what they change anything for.
DEPLOY = """\
from pyinfra import host
from llamaherd.deploy.operations import apply_role, preflight
from llamaherd.plan import Plan
from roles import ROLES
from tests.support.fake import SERVICES

plan = Plan.model_validate(host.data.plan)
preflight(plan, ROLES)
for role in host.loop([role for role in ROLES if role.name in ("cuda_toolkit", "container_runtime")]):
    apply_role(role, plan, ROLES, SERVICES)
"""
# All that is faked of the GPU: that there is one.
SMI = f"#!/bin/sh\necho 'GPU 0: NVIDIA GeForce RTX 3090 (UUID: {UUID})'\n"
OURS = (
    "/etc/apt/preferences.d/llamaherd-* /etc/apt/sources.list.d/llamaherd-* /etc/apt/keyrings/llamaherd-* "
    "/etc/docker/daemon.json* /etc/systemd/system/docker.service.d"
)


def toolkit(version: str) -> list[Package]:
    """A CUDA toolkit, and the metapackage that drags a driver in with it."""
    short = version.replace(".", "-")
    return [
        Package(f"cuda-toolkit-{short}", f"{version}.2-1", depends=(f"cuda-nvcc-{short}",)),
        Package(
            f"cuda-nvcc-{short}",
            f"{version}.88-1",
            files={f"/usr/local/cuda-{version}/bin/nvcc": NVCC.format(version)},
        ),
        Package(f"cuda-{short}", f"{version}.2-1", depends=(f"cuda-toolkit-{short}", "cuda-drivers")),
    ]


class Cards:
    """The box, which believes that it has a GPU, and a repository with what it needs."""

    def __init__(self, bench: Bench, repository: AptRepository, folder: Path) -> None:
        self.bench, self.repository = bench, repository
        self.deployment = folder / "deploy.py"
        self.deployment.write_text(DEPLOY)

    def rig(self, **container_toolkit: object) -> Declared:
        """The rig with a server that is built for the GPU, and one in a container that is on it."""
        rig = self.bench.rig()
        model = "gemma-3-270m"
        rig["gpus"] = {
            "cuda": "13.0",
            "repository": self.repository.declared,
            "container_toolkit": {"repository": self.repository.declared, **container_toolkit},
            "cards": {"big": {"model": "RTX 3090", "uuid": UUID}},
        }
        rig["engines"]["cuda"] = rig["engines"]["main"]
        rig["engines"]["ready"] = {"kind": "llama.cpp", "image": f"registry.lan/llama@sha256:{'ab' * 32}"}
        on_card = {"model": model, "on": ["big"], "context": 1024}
        rig["instances"]["built"] = {"engine": "cuda", "port": 8090, **on_card}
        rig["instances"]["boxed"] = {"engine": "ready", "port": 8091, "backend": "compose", **on_card}
        return rig

    def deploy(self, **container_toolkit: object) -> Ended:
        """These roles, over SSH."""
        self.bench.declare(self.rig(**container_toolkit))
        return run([*PYINFRA[:2], str(self.deployment), "-y"], self.bench.environment({}))


@pytest.fixture
def cards(bench: Bench, tmp_path: Path) -> Iterator[Cards]:
    sh = bench.sh
    gateway = sh("ip route show default | cut -d ' ' -f 3").strip()
    driver = [Package(name, "580.95.05-1") for name in ("cuda-drivers", "nvidia-driver", "libcuda1", "nvidia-modprobe")]
    sh(f"cat >/usr/local/bin/nvidia-smi <<'END'\n{SMI}END\nchmod 0755 /usr/local/bin/nvidia-smi")
    brought = [*toolkit("13.0"), *toolkit("12.9"), *driver, *container_toolkit("1.19.1", [UUID])]
    # What the next release has of it so far.
    brought += container_toolkit("1.20.0", [UUID])[:2]
    with AptRepository(*brought, host=gateway) as repository:
        yield Cards(bench, repository, tmp_path)
    sh("docker rm -f on-card", check=False)
    sh(f"rm -rf {OURS} /usr/local/bin/nvidia-smi && apt-get -q -y purge {' '.join(PACKAGES)} 'cuda-*'", check=False)
    sh("rm -rf /usr/local/cuda-* && systemctl daemon-reload && systemctl restart docker && apt-get -q update")


def test_toolkits_come_without_a_driver_and_cards_reach_containers(cards: Cards) -> None:
    """Refused under containers, brought when allowed, then unchanged; kept by apt; drift is mended, and no more."""
    sh = cards.bench.sh
    sh(
        "tar -hC / -c usr/bin/cat usr/bin/sleep usr/bin/stat lib64/ld-linux-x86-64.so.2 $(ldd /usr/bin/stat | "
        "sed -n 's|.*=> /\\(.*\\) (.*|\\1|p') | docker import - probe && "
        "docker run -d --name busy --restart unless-stopped probe /usr/bin/sleep 999"
    )
    try:
        refused = cards.deploy()
        assert refused.code != 0
        assert "Docker must be restarted once to give GPUs to containers, and these run: " in refused.output
        assert "busy" in refused.output
        assert sh("ls /usr/local /etc/docker 2>/dev/null | grep -e cuda -e daemon.json || true") == ""

        not_with_these(cards)
        first = cards.deploy(restart_docker=True)
        assert first.code == 0, first.output
        again = cards.deploy(restart_docker=True)
        assert (again.code, again.changes) == (0, 0), again.output

        installed = sh(f"dpkg-query -W -f '${{Version}} ' {' '.join(PACKAGES)}").split()
        assert installed == ["1.19.1-1"] * 4
        assert sh("/usr/local/cuda-13.0/bin/nvcc | grep -o 13.0 | head -n 1") == "13.0"
        assert sh("dpkg -l cuda-drivers nvidia-driver libcuda1 2>/dev/null | grep -c ^ii || true") == "0"
        for trap in ("cuda-13-0", "cuda-drivers", "libcuda1"):
            assert "no installation candidate" in sh(f"apt-get -s install {trap} 2>&1", check=False)

        device(cards)
        kept(cards)
        settings(cards)
    finally:
        sh("docker rm -f busy on-card; docker rmi probe", check=False)


INSTALLS = f"""
import sys
sys.path.insert(0, {packed_program().path!r})
from llamaherd.onhost import apt, system
apt.LOCK_SECONDS = 2
try:
    apt.install_missing(system.Host(print, print), ["hello"])
except system.FailedError as error:
    print(error.message, error.fix)
"""


def test_whoever_holds_apt_is_named(bench: Bench) -> None:
    """After having been waited for."""
    holds = "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, 2); time.sleep(90)"
    pid = bench.sh(f'python3 -c "{holds}" >/dev/null 2>&1 & echo $!')
    try:
        said = bench.sh(f"python3 - 2>&1 <<'END'\n{INSTALLS}\nEND", check=False)
        assert "apt could not install: hello." in said
        assert f"python3 (process {pid}) holds apt's locks" in said
    finally:
        bench.sh(f"kill {pid}")


def not_with_these(cards: Cards) -> None:
    """A Docker that does not come up with what is put into its settings has those of before back, and its containers.

    That it does not is the doing of a drop-in: Docker itself takes them."""
    sh = cards.bench.sh
    folder = "/run/systemd/system/docker.service.d"
    drop_in = "[Service]\\nExecStartPre=/bin/sh -c '! grep nvidia /etc/docker/daemon.json'\\n"
    sh(f'mkdir -p {folder}; printf "{drop_in}" >{folder}/not-with-these.conf; systemctl daemon-reload')
    refused = cards.deploy(restart_docker=True)
    sh(f"rm -r {folder}; systemctl daemon-reload")
    assert refused.code == 1, refused.output
    assert "does not come up with /etc/docker/daemon.json as it would be: the one before is back" in refused.output
    assert sh("ls /etc/docker/daemon.json 2>&1", check=False).endswith("No such file or directory")
    assert sh("docker inspect -f '{{.State.Running}}' busy") == "true"
    assert (
        sh("ls /run/llamaherd/undo | grep -v -e log -e settings; systemctl is-active docker", check=False) == "active"
    )


def device(cards: Cards) -> None:
    """The reservation of our own project, in a container of Docker Compose: there, and still after a daemon-reload."""
    (planned,) = (each for each in cards.bench.plan()["instances"] if each["name"] == "boxed")
    reserved = yaml.safe_load(planned["file"]["text"])["services"]["server"]["deploy"]
    server = {"image": "probe", "container_name": "on-card", "command": ["/usr/bin/sleep", "999"], "deploy": reserved}
    project = json.dumps({"name": "on-card", "services": {"server": server}})
    cards.bench.sh(f"cat >/root/on-card.json <<'END'\n{project}\nEND")
    cards.bench.sh("docker compose -f /root/on-card.json up -d 2>/dev/null && systemctl daemon-reload")
    # /dev/null's own numbers: the GPU that is not there.
    assert cards.bench.sh("docker exec on-card /usr/bin/stat -c %t:%T /dev/nvidia0") == "1:3"
    assert cards.bench.sh("docker exec on-card /usr/bin/cat /dev/nvidia0") == ""


def kept(cards: Cards) -> None:
    """A newer release does not come by itself, and comes when it is declared: all four of it."""
    cards.repository.publish(*container_toolkit("1.20.0", [UUID])[2:])
    cards.bench.sh("apt-get -q update && apt-get -q -y upgrade nvidia-container-toolkit")
    assert "1.19.1" in cards.bench.sh("nvidia-ctk --version")
    declared = cards.deploy(restart_docker=True, version="1.20.0")
    assert (declared.code, declared.changes) == (0, 1), declared.output
    assert cards.bench.sh("nvidia-ctk --version && nvidia-container-cli | sort -u").count("1.20.0") == 3


def settings(cards: Cards) -> None:
    """Somebody else's settings stay, and what they lack of ours is put in while containers go on."""
    sh = cards.bench.sh
    started = sh("docker inspect -f '{{.State.StartedAt}}' busy on-card")
    sh('printf \'{\\n  "log-opts": {"max-size": "5m"}\\n}\\n\' >/etc/docker/daemon.json')
    sh("chmod 600 /etc/docker/daemon.json && systemctl reload docker")
    mended = cards.deploy(version="1.20.0")
    assert (mended.code, mended.changes) == (0, 1), mended.output
    merged = json.loads(sh("cat /etc/docker/daemon.json"))
    assert merged["log-opts"] == {"max-size": "5m"}
    assert (merged["features"], list(merged["runtimes"])) == ({"cdi": True}, ["nvidia"])
    assert sh("stat -c %a /etc/docker/daemon.json") == "600"
    assert sh("docker inspect -f '{{.State.StartedAt}}' busy on-card") == started
    assert "nvidia" in sh("docker info -f '{{json .Runtimes}}'")

    sh("printf '{\\n  nonsense\\n}' >/etc/docker/daemon.json")
    refused = cards.deploy(version="1.20.0")
    assert refused.code != 0
    assert "/etc/docker/daemon.json is no JSON: line 2, column 3" in refused.output
