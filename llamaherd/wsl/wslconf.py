"""/etc/wsl.conf, which the distribution reads when it starts: systemd switched on, all else left as it is."""

from __future__ import annotations

from llamaherd.wsl.merge import MergeError, Wanted, counting, decoded, with_settings
from llamaherd.wsl.reading import Setting, read

PATH = "/etc/wsl.conf"
WANTED: Wanted = {"boot": {"systemd": "true"}}


def merge_wslconf(before: bytes | None) -> bytes:
    """A wsl.conf in which WSL reads what is wanted; `before` is None where there is none yet.

    Inside Linux, WSL reads nothing behind a line that it cannot read (microsoft/WSL,
    src/linux/init/WslDistributionConfig.cpp: no CFG_SKIP_INVALID_LINES). Raises MergeError where that is in the way.
    """
    bom, text = decoded(before or b"", PATH)
    contents = read(text, stops=True)
    found = counting(contents, str.lower).get("boot.systemd")
    if found and not bom and _same(found, "true"):
        return before or b""
    if bom or contents.invalid:
        line = 1 if bom else contents.invalid[0]
        raise MergeError(
            f"line {line} of {PATH} cannot be read by WSL, which reads nothing behind it",
            "correct that line: settings are `key = value`, comments begin with `#`, and there is no byte order mark",
        )
    return with_settings(text, WANTED, "\n", str.lower, _same, stops=True).encode()


def _same(found: Setting, value: str) -> bool:
    """Truth values: `1` is `true`."""
    return found.value.lower() in {value, str(int(value == "true"))}
