"""The image of a throwaway host: a Debian that boots, pulled from a registry or else made from a mirror."""

import hashlib
import io
import platform
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from docker import DockerClient, from_env
from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from box.errors import BoxError, ending

Report = Callable[[str], None]

RECIPE = "llamaherd.recipe"  # the label that says what the image was made from

HERE = Path(__file__).parent
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Debian(NamedTuple):
    """A release that hosts are made from."""

    codename: str
    version: str

    @property
    def base(self) -> str:
        """The tag of a plain system."""
        return f"llamaherd-debian:{self.version}"

    @property
    def image(self) -> str:
        """The tag of a system that boots and lets its user in."""
        return f"llamaherd-box:{self.version}"


BOOKWORM, TRIXIE = Debian("bookworm", "12"), Debian("trixie", "13")


def ensure(client: DockerClient, debian: Debian, report: Report) -> str:
    """The id of a release's image, made first when there is none or its recipe has changed."""
    sources = mirror_sources(debian)
    files = _context(sources)
    recipe = hashlib.sha256(repr([debian.base, sorted(files.items())]).encode()).hexdigest()[:16]
    try:
        image = client.images.get(debian.image)
    except ImageNotFound:
        pass
    else:
        if image.labels.get(RECIPE) == recipe:
            return str(image.id)
    _ensure_base(client, debian, sources, report)
    report(f"building the image {debian.image}")
    try:
        image, _ = client.images.build(
            fileobj=_tar(files),
            custom_context=True,
            tag=debian.image,
            buildargs={"BASE": debian.base},
            labels={RECIPE: recipe},
            rm=True,
            forcerm=True,
        )
    except BuildError as error:
        log = "".join(str(line.get("stream", "")) for line in error.build_log if isinstance(line, dict))
        raise BoxError(
            f"the box's image could not be built ({error.msg}). Most often a mirror is out of reach; "
            f"the end of the log:\n{ending(log)}"
        ) from error
    # An image of an older recipe has lost its name by now; one that a container uses is left alone.
    client.images.prune(filters={"dangling": True, "label": RECIPE})
    return str(image.id)


def remove(client: DockerClient, debian: Debian, report: Report) -> None:
    """Remove a release's image and its base, unless another box stands on them."""
    for tag in (debian.image, debian.base):
        try:
            client.images.remove(tag)
        except ImageNotFound:
            continue
        except APIError as error:
            report(f"the image {tag} stays: {error.explanation}")


def mirror_sources(debian: Debian) -> list[str]:
    """Sources for a release, on the mirror that this machine's own apt uses.

    None where this machine is no Debian, or its mirror is of a kind that only works here (a file, a disc):
    then the release's public defaults serve.
    """
    system = platform.freedesktop_os_release()
    codename = system.get("VERSION_CODENAME")
    if system["ID"] != "debian" or not codename:
        return []
    ours = {codename + pocket: debian.codename + pocket for pocket in ("", "-updates", "-security")}
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(CREATED_BY) $(COMPONENT) $(RELEASE) $(REPO_URI)"],
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, str] = {}
    for line in listed.stdout.splitlines():
        kind, component, suite, uri = line.split(" ", 3)
        reachable = urlsplit(uri).scheme in ("http", "https")
        if kind == "Packages" and component == "main" and suite in ours and reachable:
            found.setdefault(ours[suite], uri)
    # Without the release itself, the pockets beside it are of no use.
    return [f"deb {uri} {suite} main" for suite, uri in found.items()] if debian.codename in found else []


def _ensure_base(client: DockerClient, debian: Debian, sources: list[str], report: Report) -> None:
    """A plain Debian under our own tag: pulled, or made from the mirror."""
    try:
        client.images.get(debian.base)
    except ImageNotFound:
        pass
    else:
        return
    report(f"pulling debian:{debian.version} (a registry that says nothing for 10 s counts as absent)")
    # The timeout is for each silence, not for the whole: a slow registry that answers is waited for.
    hasty = from_env(timeout=10)
    try:
        hasty.images.pull("debian", debian.version).tag(debian.base)
    except (DockerException, RequestException):
        _bootstrap(client, debian, sources, report)
    finally:
        hasty.close()


def _bootstrap(client: DockerClient, debian: Debian, sources: list[str], report: Report) -> None:
    """Make the base with mmdebstrap, which needs only a Debian mirror."""
    report("no image registry answers: making the base image from a Debian mirror with mmdebstrap (about 20 s)")
    keyring = [f"--keyring={KEYRING}"] if KEYRING.exists() else []
    with tempfile.TemporaryDirectory(prefix="llamaherd-base-") as folder:
        archive = Path(folder) / "base.tar"
        ended = subprocess.run(
            [
                *("mmdebstrap", "--variant=minbase", "--include=ca-certificates", *keyring),
                *('--aptopt=Acquire::Retries "3"', debian.codename, str(archive), *sources),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if ended.returncode != 0:
            raise BoxError(
                "mmdebstrap could not make the base image. Look whether a Debian mirror can be reached; it "
                f"said:\n{ending(ended.stdout)}"
            )
        repository, tag = debian.base.split(":")
        client.api.import_image(str(archive), repository=repository, tag=tag)


def _context(sources: list[str]) -> dict[str, bytes]:
    """What the engine builds the image from: the files beside this one, and what only this machine knows."""
    files = {
        str(path.relative_to(HERE)): path.read_bytes()
        for path in HERE.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    if CA_BUNDLE.exists():
        # Twice: apt needs the bundle before ca-certificates is configured, which then makes it anew from its
        # own list and from what it finds in the local folder.
        bundle = CA_BUNDLE.read_bytes()
        files["rootfs/etc/ssl/certs/ca-certificates.crt"] = bundle
        files["rootfs/usr/local/share/ca-certificates/controller.crt"] = bundle
    if sources:
        files["rootfs/etc/apt/sources.list"] = "".join(f"{line}\n" for line in sources).encode()
    return files


def _tar(files: dict[str, bytes]) -> io.BytesIO:
    """The files as an archive, the same bytes for the same files, so that the engine's own cache holds."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    buffer.seek(0)
    return buffer
