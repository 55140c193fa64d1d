"""Where things lie on a host, and who owns them."""

from __future__ import annotations

from pathlib import PurePosixPath

BUILDS = PurePosixPath("/opt/llamaherd/builds")
LIBEXEC = PurePosixPath("/opt/llamaherd/libexec")
STATE = PurePosixPath("/var/lib/llamaherd")
CACHE = PurePosixPath("/var/cache/llamaherd")
KEYS = PurePosixPath("/etc/llamaherd/keys")
PROJECTS = PurePosixPath("/etc/llamaherd/compose")
UNITS = PurePosixPath("/etc/systemd/system")

BUILD_PATH = STATE / "build"
"""Where every build sees itself: paths get into objects, and the same ones are compiled only once."""
BUILDERS_FOLDERS = (STATE / "work", CACHE / "sources", CACHE / "ccache")
"""What the user that compiles may write to."""
FOLDERS = (BUILDS, LIBEXEC, STATE / "models", BUILD_PATH, PROJECTS, *BUILDERS_FOLDERS)
INCOMING = STATE / "incoming"

SERVER_USER = "llama"
BUILD_USER = "llama-build"
CONTAINER_UID = "65532"
"""Who a server is inside its container; no user of the host has this id."""
