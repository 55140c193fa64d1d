"""Packages of the distribution, and the apt repositories of NVIDIA's packages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Repository as DeclaredRepository
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.apt import InstallInput, Repository
from llamaherd.plan import RepositoryPlan, TextFile
from llamaherd.reference.cards import on_arm
from llamaherd.role.changes import Change, RunVerb, file_differences, written_files

NVIDIA = "nvidia"
"""The repository of driver and CUDA toolkit."""

CONTAINER_TOOLKIT = "nvidia-container-toolkit"
"""That of the container toolkit."""

_KEYRINGS = "/etc/apt/keyrings"
_SOURCES = "/etc/apt/sources.list.d"


def install_changes(missing: Iterable[str]) -> list[Change]:
    """Install these packages."""
    wanted = tuple(missing)
    names = ", ".join(wanted)
    how = RunVerb("base.install", InstallInput(wanted), f"installing {names}")
    return [Change("install", "packages", names, ("not installed",), how)] if wanted else []


class _Key(NamedTuple):
    path: str
    fingerprint: str


_OLD = _Key("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_NEW = _Key("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")

_CODES = {
    "debian-12": ("debian12", _OLD),
    "debian-13": ("debian13", _NEW),
    "ubuntu-22.04": ("ubuntu2204", _OLD),
    "ubuntu-24.04": ("ubuntu2404", _OLD),
    "ubuntu-26.04": ("ubuntu2604", _NEW),
}
"""NVIDIA's name of each distribution's repository, and the key that signs it (NVIDIA, Driver Installation Guide)."""


def nvidia_repository(rig: Rig) -> RepositoryPlan:
    """Return the repository of driver and toolkit."""
    declared = rig.gpus.repository if rig.gpus else None
    if declared:
        return _declared(NVIDIA, rig.rig, declared)
    code, key = ("wsl-ubuntu", _OLD) if rig.host.wsl else _CODES[rig.host.os]
    gpus = rig.gpus.cards.values() if rig.gpus else ()
    machine = "sbsa" if any(on_arm(gpu.cuda_architecture) for gpu in gpus) else "x86_64"
    url = f"https://developer.download.nvidia.com/compute/cuda/repos/{code}/{machine}"
    return _repository(NVIDIA, rig.rig, url, f"{url}/{key.path}", key.fingerprint)


def container_toolkit_repository(rig: Rig) -> RepositoryPlan:
    """Return the repository of the container toolkit."""
    declared = rig.gpus.container_toolkit.repository if rig.gpus else None
    if declared:
        return _declared(CONTAINER_TOOLKIT, rig.rig, declared)
    root = "https://nvidia.github.io/libnvidia-container"
    # apt itself puts its architecture here.
    url = f"{root}/stable/deb/$(ARCH)"
    return _repository(CONTAINER_TOOLKIT, rig.rig, url, f"{root}/gpgkey", "C95B321B61E88C1809C4F759DDCAE044F796ECB0")


def repository_changes(repository: RepositoryPlan, state: HostState) -> list[Change]:
    """Add a repository to apt, unless another tool has added it: two files for one address are an error."""
    if repository.name in state.system.repositories:
        return []
    why = file_differences([repository.sources], state)
    if repository.keyring not in state.files:
        why = (f"its key {repository.keyring} is not there", *why)
    if not why:
        return []
    (sources,) = written_files([repository.sources])
    given = Repository(repository.url, repository.key, repository.fingerprint, repository.keyring, sources)
    how = RunVerb("base.add_repository", given, f"making {repository.url} known to apt")
    return [Change("create", "repository", repository.name, why, how)]


def _declared(name: str, rig: str, declared: DeclaredRepository) -> RepositoryPlan:
    url = declared.url.rstrip("/")
    key = declared.key if "://" in declared.key else f"{url}/{declared.key}"
    return _repository(name, rig, url, key, declared.fingerprint.upper())


def _repository(name: str, rig: str, url: str, key: str, fingerprint: str) -> RepositoryPlan:
    keyring = f"{_KEYRINGS}/llamaherd-{name}.asc"
    text = (
        f"# Written by llamaherd for rig `{rig}`: change the inventory, not this file.\n"
        f"Types: deb\nURIs: {url}/\nSuites: /\nSigned-By: {keyring}\n"
    )
    sources = TextFile(path=f"{_SOURCES}/llamaherd-{name}.sources", text=text)
    return RepositoryPlan(name=name, url=url, key=key, fingerprint=fingerprint, keyring=keyring, sources=sources)
