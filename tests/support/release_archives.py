"""Archives of a release in the shape of llama.cpp's: one folder with a small real server, its library, and links."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from llamaherd.inventory.schema.software import ReleaseArchive

ROOT = Path(__file__).resolve().parents[2]
TAG = "b11434"

LIBRARY = 'const char *number(void) { return "11434"; }\n'
SERVER = r"""
#include <stdio.h>
#include <string.h>
const char *number(void);
int main(int count, char **words) {
    if (count < 2) return 2;
    if (!strcmp(words[1], "--version")) fprintf(stderr, "version: %s (cdcdcdcdc)\n", number());
    else if (!strcmp(words[1], "--list-devices")) printf("Available devices:\n  CUDA0: RTX 3090\n");
    else printf("usage:\n-h, --help   print usage\n--port N     the port\n");
    return 0;
}
"""
LINKS = {"libllama.so": "libllama.so.0", "libllama.so.0": "libllama.so.0.0.1"}


def compile_release(folder: Path) -> dict[str, bytes]:
    """Compile the programs of a release, as upstream links them: to a library in their own folder."""
    (folder / "library.c").write_text(LIBRARY)
    (folder / "server.c").write_text(SERVER)
    library = ("-shared", "-fPIC", "-Wl,-soname,libllama.so.0", "library.c", "-o", "libllama.so.0.0.1")
    server = ("server.c", "./libllama.so.0.0.1", "-Wl,-rpath,$ORIGIN", "-o", "llama-server")
    for words in (library, server):
        subprocess.run(["cc", *words], cwd=folder, check=True)
    programs = {"llama-server": folder / "llama-server", "llama-fit-params": folder / "llama-server"}
    return {name: file.read_bytes() for name, file in (*programs.items(), ("libllama.so.0.0.1", folder / library[-1]))}


def pack(files: Mapping[str, bytes], links: Mapping[str, str], top: str = f"llama-{TAG}") -> bytes:
    """Return an archive as `tar --transform` of upstream's workflow makes it: all in one folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        folder = tarfile.TarInfo(f"{top}/")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
        for name, target in links.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
        for name, data in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode = len(data), 0o644 if name.isupper() else 0o755
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def entry(url: str, data: bytes) -> ReleaseArchive:
    """Return the archive at a URL as the lock has it."""
    return ReleaseArchive(url, hashlib.sha256(data).hexdigest(), len(data))


def fetcher(folder: Path) -> str:
    """Write the program that fetches, as hosts have it, and return its path."""
    program = folder / "fetch"
    lines = ("import sys", f"sys.path.insert(0, {str(ROOT)!r})", "from llamaherd.onhost.fetch.main import main")
    program.write_text("\n".join([f"#!{sys.executable} -I", *lines, "sys.exit(main())\n"]))
    program.chmod(0o755)
    return str(program)
