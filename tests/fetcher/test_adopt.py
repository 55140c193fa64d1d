"""Files that are on the host already: where they are looked for, how they are proved, and how they are brought in."""

import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.onhost.fetch.adopt import _linked, _OtherFileError, adopt
from llamaherd.onhost.fetch.job import File, Job
from tests.support.stores import fetcher_command, manifest_line, needs_root

BODY = b"GGUF" + bytes(range(256)) * 400
OTHER = b"\0" * len(BODY)
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host's root, with a store and a run folder."""
    for folder in ("store/.incoming", "run", "usb"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder on another filesystem than `host`."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def job(host: Path, *folders: Path, files: tuple[File, ...] = (File("35b: x.gguf", SHA256, len(BODY)),)) -> Job:
    store = host / "store"
    return Job("1", store / ".incoming", store, files, folders or (host / "usb",))


def put(path: Path, body: bytes = BODY, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    path.chmod(mode)
    return path


def arrived(host: Path) -> Path:
    """What was brought in; checks that nothing else is left in the folder."""
    assert [path.name for path in (host / "store/.incoming").iterdir()] == [SHA256]
    path = host / "store/.incoming" / SHA256
    assert path.read_bytes() == BODY
    return path


def nothing_arrived(host: Path) -> bool:
    return list((host / "store/.incoming").iterdir()) == []


def said(host: Path) -> str:
    return (host / "run/progress").read_text()


@pytest.mark.parametrize(
    "place",
    [
        f"home/tom/.cache/huggingface/hub/models--unsloth--x-GGUF/blobs/{SHA256}",
        f"root/.cache/huggingface/hub/models--unsloth--x-GGUF/blobs/{SHA256}",
        f"home/tom/.cache/huggingface/hub/models--unsloth--x-GGUF/snapshots/{'ab' * 20}/UD-Q4/x.gguf",
        "home/tom/.cache/llama.cpp/unsloth_x-GGUF_x.gguf",
        "home/tom/.lmstudio/models/unsloth/x-GGUF/x.gguf",
        "home/tom/.cache/lm-studio/models/unsloth/x-GGUF/x.gguf",
        f"home/tom/.ollama/models/blobs/sha256-{SHA256}",
        f"home/tom/.ollama/models/blobs/sha256:{SHA256}",
        f"usr/share/ollama/.ollama/models/blobs/sha256-{SHA256}",
        f"var/lib/ollama/models/blobs/sha256-{SHA256}",
        f"var/lib/ollama/.ollama/models/blobs/sha256-{SHA256}",
        f"var/lib/ollama/blobs/sha256-{SHA256}",
        "usb/deep/er/x.gguf",
        "store/unsloth/x-GGUF/0123/of another revision.gguf",
    ],
)
def test_where_files_are_looked_for(host: Path, place: str) -> None:
    there = put(host / place)
    put(host / "usb/other.gguf", b"other")
    adopt(job(host), host / "run", root=host)
    assert arrived(host).samefile(there)
    assert said(host) == f"35b: x.gguf: linked from {there}; nothing of it is fetched\n"


def test_a_folder_that_is_not_mounted_is_named(host: Path) -> None:
    """Whoever awaits the fetch is told, although the hub may have it all."""
    put(host / "full/x.gguf", OTHER)
    adopt(job(host, host / "usb", host / "gone", host / "full"), host / "run", root=host)
    assert (host / "run/warnings").read_text() == "".join(
        f"{host / name}, which is in `store: from:`, is empty or does not exist: is it mounted?\n"
        for name in ("usb", "gone")
    )


def test_a_home_that_is_linked_to_another_disk(host: Path) -> None:
    there = put(host / "data/hub/models--a--b/blobs" / SHA256)
    (host / "home/tom/.cache").mkdir(parents=True)
    (host / "home/tom/.cache/huggingface").symlink_to(host / "data")
    adopt(job(host), host / "run", root=host)
    assert arrived(host).samefile(there)


@needs_root
def test_a_users_file_stays_as_it_is_and_what_is_done_to_it_later_changes_nothing_here(host: Path) -> None:
    there = put(host / "usb/x.gguf", mode=0o755)
    os.chown(there, 1234, 1235)
    before = there.stat()
    adopt(job(host), host / "run", root=host)
    after = there.stat()
    assert (after.st_mode, after.st_uid, after.st_gid, after.st_mtime_ns, after.st_nlink) == (
        *(before.st_mode, before.st_uid, before.st_gid, before.st_mtime_ns),
        1,
    )
    there.write_bytes(OTHER)
    arrived(host)


@needs_root
@pytest.mark.parametrize(
    ("owner", "mode"), [(0, 0o600), (0, 0o640), (0, 0o666), (0, 0o664), (1234, 0o644), (1234, 0o444)]
)
def test_what_servers_cannot_read_or_others_can_write_is_copied(host: Path, owner: int, mode: int) -> None:
    """The owner of a file can write to it whatever its mode is: a `chmod` away."""
    there = put(host / "usb/x.gguf", mode=mode)
    os.chown(there, owner, owner)
    os.chown(host / "store/.incoming", 1234, 1235)
    adopt(job(host), host / "run", root=host)
    copy = arrived(host)
    assert not copy.samefile(there)
    stat = copy.stat()
    assert (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid) == (0o644, 1234, 1235)
    assert there.stat().st_mode & 0o7777 == mode
    assert f"copied from {there}" in said(host)


def test_what_is_open_for_writing_is_copied(host: Path) -> None:
    there = put(host / "usb/x.gguf")
    with there.open("r+b"):
        adopt(job(host), host / "run", root=host)
    assert not arrived(host).samefile(there)


def test_another_filesystem_is_copied_from(host: Path, elsewhere: Path) -> None:
    there = put(elsewhere / "x.gguf")
    assert there.stat().st_dev != host.stat().st_dev
    adopt(job(host, elsewhere), host / "run", root=host)
    assert not arrived(host).samefile(there)


@needs_root
def test_another_mount_of_the_same_filesystem_is_copied_from(host: Path) -> None:
    # Between two mounts no link can be made, whatever device they say they are.
    there = put(host / "usb/x.gguf")
    mount = host / "mounted"
    mount.mkdir()
    subprocess.run(["mount", "--bind", host / "usb", mount], check=True)
    try:
        adopt(job(host, mount), host / "run", root=host)
    finally:
        subprocess.run(["umount", mount], check=True)
    assert not arrived(host).samefile(there)


@needs_root
def test_what_an_access_list_lets_others_write_is_copied(host: Path) -> None:
    there = put(host / "usb/x.gguf")
    # acl(5) as in linux/posix_acl_xattr.h: owner, user 1234, group, mask and others, with their bits.
    entries = ((0x01, 6, -1), (0x02, 6, 1234), (0x04, 4, -1), (0x10, 6, -1), (0x20, 4, -1))
    access = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(there, "system.posix_acl_access", access)
    adopt(job(host), host / "run", root=host)
    assert not arrived(host).samefile(there)


@needs_root
@pytest.mark.skipif(not shutil.which("mkfs.xfs"), reason="needs mkfs.xfs, of xfsprogs")
def test_a_filesystem_with_clones_gets_a_clone(host: Path) -> None:
    """On XFS the user's file and ours share their blocks, and either may change without the other."""
    image = host / "xfs"
    with image.open("wb") as stream:
        stream.truncate(320 << 20)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True)
    mount = host / "store"
    (mount / ".incoming").rmdir()
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        (mount / ".incoming").mkdir()
        there = put(mount / "home/x.gguf")
        adopt(job(host, mount / "home"), host / "run", root=host)
        copy = arrived(host)
        assert not copy.samefile(there)
        assert f"cloned from {there}" in said(host)
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_wrong_file_is_passed_over_for_the_next(host: Path) -> None:
    put(host / "usb/a.gguf", OTHER)
    there = put(host / "usb/b.gguf")
    put(host / "usb/c.gguf", BODY + b"x")
    adopt(job(host), host / "run", root=host)
    assert arrived(host).samefile(there)


def test_a_wrong_file_on_another_filesystem_leaves_nothing(host: Path, elsewhere: Path) -> None:
    put(elsewhere / "a.gguf", OTHER)
    adopt(job(host, elsewhere), host / "run", root=host)
    assert nothing_arrived(host)


def test_a_name_that_lies_is_not_believed(host: Path) -> None:
    put(host / f"home/tom/.ollama/models/blobs/sha256-{SHA256}", OTHER)
    there = put(host / "usb/x.gguf")
    adopt(job(host), host / "run", root=host)
    assert arrived(host).samefile(there)


def test_a_blob_of_another_name_is_not_read(host: Path) -> None:
    # It would be the right one: that it is not taken shows that it was not hashed.
    put(host / f"home/tom/.ollama/models/blobs/sha256-{'0' * 64}")
    adopt(job(host), host / "run", root=host)
    assert nothing_arrived(host)


def test_the_likeliest_goes_first(host: Path) -> None:
    put(host / "home/tom/.lmstudio/models/a/b/x.gguf")
    there = put(host / "home/tom/.ollama/models/blobs" / f"sha256-{SHA256}")
    adopt(job(host), host / "run", root=host)
    assert arrived(host).samefile(there)


def test_what_the_store_vouches_for_is_not_hashed_again(host: Path) -> None:
    # Bytes that are not those of the hash, unchanged since the manifest said that they were: it is believed.
    there = put(host / "store/a/b/0123/x.gguf", OTHER)
    (there.parent / ".manifest").write_text(manifest_line(there, SHA256))
    adopt(job(host), host / "run", root=host)
    assert (host / "store/.incoming" / SHA256).samefile(there)


@needs_root
def test_what_the_store_vouches_for_and_others_can_write_to_is_hashed_and_copied(host: Path) -> None:
    """Also where an earlier version has linked it in."""
    there = put(host / "store/a/b/0123/x.gguf")
    os.chown(there, 1234, 1234)
    (there.parent / ".manifest").write_text(manifest_line(there, SHA256))
    adopt(job(host), host / "run", root=host)
    assert not arrived(host).samefile(there)
    (host / "store/.incoming" / SHA256).unlink()
    there.write_bytes(OTHER)
    (there.parent / ".manifest").write_text(manifest_line(there, SHA256))
    adopt(job(host), host / "run", root=host)
    assert nothing_arrived(host)


def test_what_changed_since_the_store_vouched_for_it_is_hashed(host: Path) -> None:
    there = put(host / "store/a/b/0123/x.gguf")
    (there.parent / ".manifest").write_text(manifest_line(there, SHA256))
    there.write_bytes(OTHER)
    os.utime(there, (1, 1))
    adopt(job(host), host / "run", root=host)
    assert nothing_arrived(host)


def test_what_is_no_file_or_cannot_be_read_is_passed_over(host: Path) -> None:
    os.mkfifo(host / "usb/a.gguf")
    (host / "usb/b.gguf").symlink_to("/dev/zero")
    (host / "usb/c.gguf").symlink_to("gone")
    (host / "usb/d.gguf").symlink_to("d.gguf")
    (host / "usb/e").symlink_to(".")
    (host / "usb/f").symlink_to("/proc")
    there = put(host / "behind/it.gguf")
    (host / "usb/z.gguf").symlink_to(there)
    adopt(job(host, host / "none", host / "usb"), host / "run", root=host)
    assert arrived(host).samefile(there)


def test_what_lies_too_deep_is_not_found(host: Path) -> None:
    put(host / "usb/1/2/3/4/5/6/7/8/x.gguf")
    put(host / "usb/1/2/3/4/5/6/7/8/9/x.gguf", BODY[:-1])
    short = File("short", hashlib.sha256(BODY[:-1]).hexdigest(), len(BODY) - 1)
    adopt(job(host, files=(*job(host).files, short)), host / "run", root=host)
    assert arrived(host)


def test_an_earlier_part_goes_once_the_file_is_here(host: Path) -> None:
    incoming = host / "store/.incoming"
    for ending in ("part", "map", "synced", "adopting"):
        put(incoming / f"{SHA256}.{ending}", b"x")
    put(host / "usb/x.gguf")
    adopt(job(host), host / "run", root=host)
    arrived(host)


def test_an_earlier_part_stays_while_nothing_is_found(host: Path) -> None:
    incoming = host / "store/.incoming"
    put(incoming / f"{SHA256}.part", BODY)
    put(incoming / f"{SHA256}.adopting", BODY)
    adopt(job(host), host / "run", root=host)
    assert [path.name for path in incoming.iterdir()] == [f"{SHA256}.part"]


def test_what_is_whole_is_left_alone(host: Path) -> None:
    there = put(host / "store/.incoming" / SHA256)
    put(host / "usb/x.gguf")
    adopt(job(host), host / "run", root=host)
    assert there.stat().st_nlink == 1
    assert not (host / "run/progress").exists()


def test_files_of_one_content_are_brought_in_once(host: Path) -> None:
    put(host / "usb/x.gguf")
    file = File("also: x.gguf", SHA256, len(BODY))
    adopt(job(host, files=(*job(host).files, file)), host / "run", root=host)
    assert arrived(host).stat().st_nlink == 2


@needs_root
def test_a_full_disk_is_left_to_the_fetch(host: Path) -> None:
    there = put(host / "usb/x.gguf", mode=0o600)
    incoming = host / "store/.incoming"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", incoming], check=True)
    try:
        adopt(job(host), host / "run", root=host)
        assert nothing_arrived(host)
        assert said(host) == f"35b: x.gguf: {there} cannot be used: No space left on device\n"
    finally:
        subprocess.run(["umount", incoming], check=True)


def test_a_link_in_the_way_is_not_followed(host: Path) -> None:
    """The folder's owner, who is trusted less than root, makes nothing be written elsewhere."""
    victim = put(host / "etc/victim", b"precious")
    put(host / "usb/x.gguf", mode=0o600)
    (host / "store/.incoming" / f"{SHA256}.adopting").symlink_to(victim)
    adopt(job(host), host / "run", root=host)
    arrived(host)
    assert victim.read_bytes() == b"precious"


def test_a_file_that_is_written_to_while_it_is_read_is_not_linked(host: Path) -> None:
    """By someone who opens and closes it, and writes what is there already: at that very moment, on any machine."""
    there = put(host / "usb/x.gguf")
    os.utime(there, ns=(1, 1))

    def write(_: int) -> None:
        with there.open("r+b") as stream:
            stream.write(BODY[:1])

    incoming = os.open(host / "store/.incoming", os.O_DIRECTORY)
    with there.open("rb") as source, pytest.raises(_OtherFileError):
        _linked(source.fileno(), File("x", SHA256, len(BODY)), incoming, write)
    os.close(incoming)
    assert nothing_arrived(host)


def test_killed_while_it_copies_it_begins_anew(host: Path) -> None:
    there = put(host / "usb/x.gguf", mode=0o600)
    incoming = host / "store/.incoming"
    # The kernel kills it when it has written half of the file: it sends a signal that Python does not hear.
    code = (
        "import resource, signal, sys; from pathlib import Path; from llamaherd.onhost.fetch.adopt import adopt;"
        "from llamaherd.onhost.fetch.job import File, Job; h = Path(sys.argv[1]);"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(BODY) // 2}, {len(BODY) // 2}));"
        f"f = File('x', '{SHA256}', {len(BODY)});"
        "adopt(Job('1', h/'store/.incoming', h/'store', (f,), (h/'usb',)), h/'run', root=h)"
    )
    ended = subprocess.run([sys.executable, "-c", code, host], stdout=subprocess.DEVNULL, check=False)
    assert ended.returncode == -signal.SIGXFSZ
    (copy,) = incoming.iterdir()
    assert copy.name == f"{SHA256}.adopting"
    assert copy.read_bytes() == BODY[: len(BODY) // 2]
    adopt(job(host), host / "run", root=host)
    assert not arrived(host).samefile(there)
    assert there.read_bytes() == BODY


def test_the_command(host: Path) -> None:
    there = put(host / "usb/x.gguf")
    files = [{"name": "35b: x.gguf", "sha256": SHA256, "size": len(BODY), "sources": []}]
    places = {"store": str(host / "store"), "incoming": str(host / "store/.incoming"), "folders": [str(host / "usb")]}
    (host / "job.json").write_text(json.dumps({"id": "1", "files": files, "connections": 1, "bandwidth": [], **places}))
    ended = subprocess.run(fetcher_command("adopt", host / "job.json", host / "run"), check=True, capture_output=True)
    assert f"linked from {there}" in ended.stdout.decode()
    assert arrived(host).samefile(there)
