"""Packages of NVIDIA's repositories, by their names, sources, versions and dependencies, with next to nothing in them.

What depends on what is as NVIDIA's Driver Installation Guide 610 to 620 and its repositories have it, short of what
only a desktop needs. The kernel modules are what tests/support/kernel_modules.py writes, and the real dkms "builds"
them: its compiler is `true`. `nvidia-smi` is tests/support/nvidia_smi.py, once it has compared the library with the
module that is loaded, as the real one does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tests.support import nvidia_smi
from tests.support.deb import File, Link, Package
from tests.support.fake_kernel import CARDS
from tests.support.kernel_modules import module

DRIVER = "nvidia-graphics-drivers"
DEBIANS = "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>"
UBUNTUS = "Ubuntu Core Developers <ubuntu-devel-discuss@lists.ubuntu.com>"
"""Whom a driver of NVIDIA's names as its maintainers: its packaging is made from the distributions' and keeps theirs
(NVIDIA/ubuntu-packaging-nvidia-driver, debian/templates/control.in; NVIDIA/debian-packaging-nvidia-driver)."""
Fault = Literal["", "refused", "hangs"]
"""Why a driver does not come up: the kernel refuses its module, or nvidia-smi never answers."""
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
_DKMS = "/usr/lib/dkms/common.postinst"


def pinning(branch: str) -> Package:
    """The package that keeps apt on one branch. Its file is configuration: it outlives a mere removal."""
    text = f"Package: src:*nvidia*:any src:cuda-drivers:any src:cuda-compat:any\nPin: version {branch}.*\n"
    return Package(
        f"nvidia-driver-pinning-{branch}",
        f"{branch}-1",
        provides=("nvidia-driver-pinning",),
        conflicts=("nvidia-driver-pinning",),
        files={f"/etc/apt/preferences.d/nvidia-driver-pinning-{branch}": f"{text}Pin-Priority: 1000\n"},
    )


def debian_driver(version: str, fault: Fault = "") -> list[Package]:
    """A driver as the repositories of Debian have it, such as `580.95.05`: one set of names for all branches."""
    exact = f"(= {version}-1)"

    def part(name: str, *depends: str, files: dict[str, File] | None = None, source: str = DRIVER) -> Package:
        return Package(name, f"{version}-1", depends=depends, source=source, maintainer=DEBIANS, files=files or {})

    return [
        part("nvidia-driver-cuda", f"libcuda1 {exact}", f"nvidia-smi {exact}", f"nvidia-persistenced {exact}"),
        part("libcuda1", f"libnvidia-ml1 {exact}", files=_library("libcuda.so", version)),
        part("libnvidia-ml1", files=_library("libnvidia-ml.so", version)),
        part("nvidia-smi", f"libnvidia-ml1 {exact}", files=_smi(version, hangs=fault == "hangs")),
        part("nvidia-persistenced", f"libnvidia-cfg1 {exact}", files=_persistenced(), source="nvidia-persistenced"),
        part("libnvidia-cfg1", files=_library("libnvidia-cfg.so", version)),
        part("firmware-nvidia-gsp", files={f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin": "firmware\n"}),
        part("nvidia-kernel-support", "nvidia-modprobe", files={"/etc/modprobe.d/nvidia.conf": _NO_NOUVEAU}),
        part("nvidia-modprobe", source="nvidia-modprobe", files={"/usr/bin/nvidia-modprobe": "#!/bin/sh\nexit 1\n"}),
        _modules("nvidia-kernel-open-dkms", f"{version}-1", "Dual MIT/GPL", refused=fault == "refused"),
        _modules("nvidia-kernel-dkms", f"{version}-1", "NVIDIA"),
        # What a desktop has, for metapackages to drag in.
        part(
            "nvidia-driver",
            f"nvidia-driver-cuda {exact}",
            f"nvidia-kernel-dkms {exact} | nvidia-kernel-open-dkms {exact}",
        ),
    ]


def ubuntu_driver(version: str, fault: Fault = "") -> list[Package]:
    """The same for Ubuntu: up to 580 every name has its branch, from 590 on none has. Two conflict."""
    branch = version.partition(".")[0]
    end = f"-{branch}" if int(branch) < 590 else ""
    full = f"{version}-0ubuntu1"
    exact, source = f"(= {full})", DRIVER + end

    def part(name: str, *depends: str, files: dict[str, File] | None = None) -> Package:
        one = (f"any-{name}",)
        return Package(
            name + end,
            full,
            depends=depends,
            provides=one,
            conflicts=one,
            replaces=one,
            source=source,
            maintainer=UBUNTUS,
            files=files or {},
        )

    libraries = _library("libcuda.so", version) | _library("libnvidia-ml.so", version)
    gsp, common = f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin", f"nvidia-kernel-common{end} {exact}"
    return [
        part("libnvidia-compute", files=libraries),
        part("nvidia-utils", f"libnvidia-compute{end} {exact}", files=_smi(version, hangs=fault == "hangs")),
        part("nvidia-compute-utils", f"libnvidia-compute{end} {exact}", files=_persistenced()),
        part("nvidia-firmware", files={gsp: "firmware\n"}),
        part(
            "nvidia-kernel-common", f"nvidia-firmware{end} {exact}", files={"/etc/modprobe.d/nvidia.conf": _NO_NOUVEAU}
        ),
        _modules(f"nvidia-dkms{end}-open", full, "Dual MIT/GPL", common, refused=fault == "refused"),
        _modules(f"nvidia-dkms{end}", full, "NVIDIA", common),
        part("nvidia-driver", f"nvidia-utils{end} {exact}", f"nvidia-dkms{end} {exact}"),
    ]


def metapackages(version: str, cuda: str, *, least: str = "580.65.06") -> list[Package]:
    """The traps: they drag in a driver, and by `>=` that of any later branch (NVIDIA's forum, 353805)."""
    branch, short = version.partition(".")[0], cuda.replace(".", "-")
    parts = (f"nvidia-driver (>= {least})", f"nvidia-driver-cuda (>= {least})", f"nvidia-kernel-dkms (>= {least})")
    return [
        Package("cuda-drivers", f"{version}-1", depends=parts, source="cuda-drivers"),
        Package(f"cuda-drivers-{branch}", f"{version}-1", depends=parts, source="cuda-drivers"),
        Package(f"cuda-runtime-{short}", f"{cuda}.2-1", depends=(f"cuda-drivers (>= {least})",)),
        Package(f"cuda-{short}", f"{cuda}.2-1", depends=(f"cuda-runtime-{short}", f"cuda-toolkit-{short}")),
        Package("cuda", f"{cuda}.2-1", depends=(f"cuda-{short} (>= {cuda}.2)",)),
    ]


def headers(kernel: str) -> Package:
    """What modules of a kernel are compiled against; no mirror has those of the kernel below a container."""
    source = f"/usr/src/linux-headers-{kernel}"
    files: dict[str, File] = {f"{source}/include/generated/utsrelease.h": f'#define UTS_RELEASE "{kernel}"\n'}
    files |= {f"{source}/.config": "CONFIG_MODULES=y\n", f"/lib/modules/{kernel}/build": Link(source)}
    return Package(f"linux-headers-{kernel}", "1-1", source="linux", files=files)


_NO_NOUVEAU = "blacklist nouveau\noptions nouveau modeset=0\n"


def _library(name: str, version: str) -> dict[str, File]:
    return {f"{_LIBRARIES}/{name}.{version}": "", f"{_LIBRARIES}/{name}.1": Link(f"{name}.{version}")}


def _modules(name: str, version: str, license_: str, *depends: str, refused: bool = False) -> Package:
    """Kernel modules for dkms, which conflict with those of another licence or branch."""
    upstream = version.partition("-")[0]
    source = f"/usr/src/nvidia-{upstream}"
    parts = "".join(
        f'BUILT_MODULE_NAME[{n}]="{built}"\nDEST_MODULE_LOCATION[{n}]="/updates/dkms"\nSTRIP[{n}]="no"\n'
        for n, built in enumerate(("nvidia", "nvidia-uvm"))
    )
    conf = (
        f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{upstream}"\nAUTOINSTALL="yes"\nMAKE[0]="true"\nCLEAN="true"\n{parts}'
    )
    build = f'{_DKMS} nvidia {upstream} /usr/share/nvidia "" "$2"'
    return Package(
        name,
        version,
        depends=("dkms", *(depends or (f"firmware-nvidia-gsp (= {version})", f"nvidia-kernel-support (= {version})"))),
        provides=(f"nvidia-kernel-{upstream}", "nvidia-dkms-kernel"),
        conflicts=("nvidia-dkms-kernel",),
        source=DRIVER,
        maintainer=UBUNTUS if "ubuntu" in version else DEBIANS,
        files={
            f"{source}/dkms.conf": conf,
            f"{source}/nvidia.ko": module("nvidia", upstream, license_, refused=refused),
            f"{source}/nvidia-uvm.ko": module("nvidia_uvm", upstream, license_, "nvidia"),
        },
        scripts={
            "postinst": f'#!/bin/sh\nset -e\n[ "$1" = configure ] || exit 0\n{build}\n',
            "prerm": f"#!/bin/sh\nset -e\ndkms remove -m nvidia -v {upstream} --all || true\n",
        },
    )


def _persistenced() -> dict[str, File]:
    """The daemon that keeps GPUs awake; this one sleeps, once it has seen that there is a module."""
    unit = (
        "[Unit]\nDescription=NVIDIA Persistence Daemon\n\n[Service]\nExecStartPre=/usr/bin/test -d /sys/module/nvidia\n"
        "ExecStart=/usr/bin/nvidia-persistenced --verbose\n\n[Install]\nWantedBy=multi-user.target\n"
    )
    return {
        "/usr/lib/systemd/system/nvidia-persistenced.service": unit,
        "/usr/bin/nvidia-persistenced": "#!/bin/sh\nexec sleep infinity\n",
    }


def _smi(version: str, *, hangs: bool = False) -> dict[str, File]:
    """nvidia-smi, and what stands in for it."""
    program = f"""\
#!/bin/sh
{"exec sleep infinity" if hangs else ""}
loaded=$(cat /sys/module/nvidia/version 2>/dev/null) || {{
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest" \\
        "NVIDIA driver is installed and running."
    exit 9
}}
library=$(readlink {_LIBRARIES}/libnvidia-ml.so.1)
library=${{library#libnvidia-ml.so.}}
[ "$loaded" = "$library" ] || {{
    echo "Failed to initialize NVML: Driver/library version mismatch"
    echo "NVML library version: ${{library%.*}}"
    exit 18
}}
export FAKE_CARDS={CARDS} FAKE_DRIVER="$loaded" RUNTIME_DIRECTORY="${{RUNTIME_DIRECTORY:-/run/llamaherd/gpu-power}}"
exec python3 /usr/share/nvidia-smi-{version}/nvidia_smi.py "$@"
"""
    stand_in = Path(nvidia_smi.__file__).read_text()
    return {"/usr/bin/nvidia-smi": program, f"/usr/share/nvidia-smi-{version}/nvidia_smi.py": stand_in}
