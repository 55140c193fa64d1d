"""/etc/wsl.conf, which the distribution reads when it starts: systemd switched on, all else left as it is."""

from __future__ import annotations

from llamaherd.wsl.merge import MergeError, WantedSettings, counting, decoded, with_settings
from llamaherd.wsl.reading import WslSetting, read_settings

WSL_CONF = "/etc/wsl.conf"
WANTED: WantedSettings = {"boot": {"systemd": "true"}}


def merge_wslconf(before: bytes | None) -> bytes:
    """A wsl.conf in which WSL reads what is wanted; `before` is None where there is none yet.

    Inside Linux, WSL reads nothing behind a line that it cannot read (microsoft/WSL,
    src/linux/init/WslDistributionConfig.cpp: no CFG_SKIP_INVALID_LINES). Raises MergeError where that is in the way.
    """
    bom, text = decoded(before or b"", WSL_CONF)
    contents = read_settings(text, stops=True)
    found = counting(contents, str.lower).get("boot.systemd")
    if found and not bom and _same(found, "true"):
        return before or b""
    if bom or contents.invalid:
        line = 1 if bom else contents.invalid[0]
        raise MergeError(
            f"line {line} of {WSL_CONF} cannot be read by WSL, which reads nothing behind it",
            "correct that line: settings are `key = value`, comments begin with `#`, and there is no byte order mark",
        )
    return with_settings(text, WANTED, "\n", str.lower, _same, stops=True).encode()


def starts_systemd(before: bytes | None) -> bool:
    """Whether systemd does not run because wsl.conf does not say so yet, which the role of WSL sees to."""
    try:
        return merge_wslconf(before) != (before or b"")
    except MergeError:
        return False


def _same(found: WslSetting, value: str) -> bool:
    """Truth values: `1` is `true`."""
    return found.value.lower() in {value, str(int(value == "true"))}
