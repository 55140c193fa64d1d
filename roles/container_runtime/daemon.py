"""Docker's daemon.json: our keys put into it, and all that others have there left as it is."""

from __future__ import annotations

import json
import math
import re
from typing import Any

PATH = "/etc/docker/daemon.json"
RUNTIME = "nvidia"
_PROGRAM = "nvidia-container-runtime"
_LONGEST = 40
"""Characters of a number."""


class SettingsError(ValueError):
    """Why settings are better left alone, as a sentence."""


def merge(before: bytes | None, *, cdi: bool) -> bytes:
    """Return the settings with NVIDIA's runtime, and with CDI if it must be enabled. Raise SettingsError."""
    # Settings that contain both come back byte for byte.
    settings = read_daemon(before)
    runtimes, features = _mapping(settings, "runtimes"), _mapping(settings, "features")
    ours = runtimes.get(RUNTIME, {})
    if not isinstance(ours, dict):
        raise SettingsError(f"`runtimes.{RUNTIME}` in {PATH} is no mapping")
    wanted = {}
    if str(ours.get("path", "")).rpartition("/")[2] != _PROGRAM:
        wanted["runtimes"] = {**runtimes, RUNTIME: {"args": [], **ours, "path": _PROGRAM}}
    if features.get("cdi", not cdi) is not True:
        wanted["features"] = {**features, "cdi": True}
    return _written({**settings, **wanted}, before) if wanted or before is None else before


def read_daemon(content: bytes | None) -> dict[str, Any]:
    """Return the content of settings; empty without settings. Raise SettingsError."""
    try:
        text = (content or b"").decode()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{PATH} is no UTF-8 at byte {error.start}") from error
    if not text.strip():
        return {}
    try:
        settings = json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_number)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise SettingsError(f"{PATH} is no JSON: line {error.lineno}, column {error.colno}: {reason}") from error
    except RecursionError as error:
        raise SettingsError(f"{PATH} is nested too deeply to be settings") from error
    if not isinstance(settings, dict):
        raise SettingsError(f"{PATH} holds no mapping")
    return settings


def _number(text: str) -> int | float:
    """Return a number that is written as it was read."""
    # Docker has no numbers that are not.
    short = len(text) < _LONGEST
    number = (int(text) if re.fullmatch(r"-?\d+", text) else float(text)) if short else math.nan
    if not math.isfinite(number):
        raise SettingsError(f"{PATH} is no JSON that Docker takes: {text[:_LONGEST]} is no number of its")
    return number


def _mapping(settings: dict[str, Any], key: str) -> dict[str, Any]:
    value = settings.get(key, {})
    if not isinstance(value, dict):
        raise SettingsError(f"`{key}` in {PATH} is no mapping")
    return value


def _written(settings: dict[str, Any], before: bytes | None) -> bytes:
    """Return settings with the same indentation as before, or that of Docker's own pages."""
    found = re.search(rb"\n([ \t]+)\"", before or b"")
    indent = found[1].decode() if found else 4 * " "
    text = json.dumps(settings, indent=indent, ensure_ascii=False)
    if any("\ud800" <= character <= "\udfff" for character in text):
        text = json.dumps(settings, indent=indent)  # half a character, which JSON can write and UTF-8 cannot
    return f"{text}\n".encode()
