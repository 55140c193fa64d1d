"""Stands in for NVIDIA's container toolkit: packages of its names, whose programs describe GPUs that are not there."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.deb import Package

SPEC = "/var/run/cdi/nvidia.yaml"


def container_toolkit(version: str, cards: Iterable[str]) -> list[Package]:
    """The four packages at one version; a container that gets one of these GPUs gets /dev/null by its name."""
    exact, uuids = f"(= {version}-1)", list(cards)
    devices = [(str(number), number) for number in range(len(uuids))] + [(uuid, n) for n, uuid in enumerate(uuids)]
    spec = "".join(_device(name, [number]) for name, number in devices) + _device("all", list(range(len(uuids))))
    ctk = f"""\
#!/bin/sh
case "$1 $2" in
"--version "*) echo "NVIDIA Container Toolkit CLI version {version}" ;;
"cdi list") sed -n 's|^  - name: "\\(.*\\)"|nvidia.com/gpu=\\1|p' {SPEC} 2>/dev/null ;;
"cdi generate") mkdir -p {SPEC.rpartition("/")[0]} && cat >{SPEC} <<'END'
cdiVersion: "0.5.0"
kind: "nvidia.com/gpu"
devices:
{spec}END
;;
esac
"""
    cli = f"#!/bin/sh\necho 'cli-version: {version}'\necho 'lib-version: {version}'\n"
    units = "/usr/lib/systemd/system/nvidia-cdi-refresh"
    wanted = "[Install]\nWantedBy=multi-user.target\n"
    service = f"[Service]\nType=oneshot\nExecStart=/usr/bin/nvidia-ctk cdi generate --output={SPEC}\n{wanted}"
    return [
        Package(
            "nvidia-container-toolkit",
            f"{version}-1",
            depends=(f"nvidia-container-toolkit-base {exact}", f"libnvidia-container-tools {exact}"),
        ),
        Package(
            "nvidia-container-toolkit-base",
            f"{version}-1",
            files={
                "/usr/bin/nvidia-ctk": ctk,
                "/usr/bin/nvidia-container-runtime": '#!/bin/sh\nexec runc "$@"\n',
                f"{units}.service": service,
                f"{units}.path": f"[Path]\nPathChanged=/usr/bin/nvidia-ctk\n{wanted}",
            },
        ),
        Package(
            "libnvidia-container-tools",
            f"{version}-1",
            depends=(f"libnvidia-container1 {exact}",),
            files={"/usr/bin/nvidia-container-cli": cli},
        ),
        Package("libnvidia-container1", f"{version}-1"),
    ]


def _device(name: str, numbers: Iterable[int]) -> str:
    nodes = "".join(f"        - path: /dev/nvidia{number}\n          hostPath: /dev/null\n" for number in numbers)
    return f'  - name: "{name}"\n    containerEdits:\n      deviceNodes:\n{nodes}'
