"""Make the image of an engine: this host's build, on a base that is made from this host's own release."""

from __future__ import annotations

import os
import re

from llamaherd.layout import BASE_IMAGE_LOG, BUILDS, WORK
from llamaherd.onhost.clients import docker, ensure_docker
from llamaherd.onhost.system import Ended, FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.model import ImageInput

SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list.d/ubuntu.sources")
LOG = str(BASE_IMAGE_LOG)
_BOOTSTRAP_SECONDS = 9000
_LAST = 12


def make_image(given: ImageInput, system: System) -> None:
    """Make the image of a build. Raise FailedError with the last lines of the program that failed."""
    if not ensure_docker(system):
        raise FailedError(f"Docker does not start, so there is no image {given.tag}", "see `systemctl status docker`")
    if not docker(system, "image", "inspect", given.base).ok:
        _make_base(given, system)
    folder = f"{WORK}/image-{given.build}"
    try:
        system.remove(folder)
        system.folder(f"{folder}/bin", mode=0o700)
        system.write(f"{folder}/Dockerfile", given.dockerfile)
        system.copy(f"{BUILDS}/{given.build}/bin/llama-server", f"{folder}/bin/llama-server")
        # The classic builder: the distribution's Docker comes without BuildKit's client, and a COPY needs no more.
        words = ["docker", "build", "-q", "--build-arg", f"BASE={given.base}", "-t", given.tag, folder]
        ended = system.run(words, seconds=_BOOTSTRAP_SECONDS, environment={**os.environ, "DOCKER_BUILDKIT": "0"})
        if not ended.ok:
            raise FailedError(f"cannot make image {given.tag}", log=_last(ended))
        # A name can be given to any image: which one this is, is kept.
        found = docker(system, "image", "inspect", "--format", "{{.Id}}", given.tag)
        system.write(given.record, found.out, mode=0o644)
    except OSError as error:
        raise FailedError(f"cannot make image {given.tag}: {error.filename or ''} {error.strerror}") from error
    finally:
        system.remove(folder)


def _make_base(given: ImageInput, system: System) -> None:
    """Make the base of images from the distribution's mirror: files of the named packages, no script of theirs."""
    system.report("making the base image from the distribution's mirror")
    archive = f"{WORK}/base.tar"
    sources = [each for each in SOURCES if (entry := system.entry(each)) and entry.size]
    release = re.search(r"^VERSION_CODENAME=(\S+)$", system.read("/etc/os-release") or "", re.MULTILINE)
    packages = ",".join(given.base_packages)
    words = ["mmdebstrap", "--variant=extract", f"--include={packages}", release[1] if release else ""]
    try:
        for step in ([*words, archive, *sources], ["docker", "import", archive, given.base]):
            ended = system.run(step, seconds=_BOOTSTRAP_SECONDS)
            system.write(LOG, ended.out + ended.err, mode=0o644)
            if not ended.ok:
                raise FailedError(f"cannot make {given.base}; the whole log is {LOG}", log=_last(ended))
    finally:
        system.remove(archive)


def _last(ended: Ended) -> list[str]:
    return (ended.out + ended.err).splitlines()[-_LAST:]


VERBS = {"make": Verb(ImageInput, make_image)}
