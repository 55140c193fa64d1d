"""Paths of a systemd unit: what a service looks for where it is not, cannot see, or may not write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from llamaherd.diagnostics.findings import Finding
from llamaherd.recipes.commands import Word
from llamaherd.recipes.programs import ServerCommand
from llamaherd.recipes.unit_rules import OUT_OF_SIGHT
from llamaherd.recipes.unitrules import Started

_PATH_FLAGS = {
    *("-m", "--model", "-md", "--model-draft", "--spec-draft-model", "-mm", "--mmproj", "--lora", "--api-key-file"),
    *("--chat-template-file", "--grammar-file", "--log-file", "--slot-save-path", "--ssl-key-file", "--ssl-cert-file"),
    *("--models-dir", "--models-preset", "--control-vector", "--path"),
}
_HOMES = ("/home/", "/root/", "/run/user/")
_WRITTEN = frozenset({"--log-file", "--slot-save-path"})
_FOLDERS = {
    "StateDirectory": "/var/lib",
    "CacheDirectory": "/var/cache",
    "LogsDirectory": "/var/log",
    "RuntimeDirectory": "/run",
}
"""Keys by which systemd makes folders that a service may write (man systemd.exec)."""
_CACHES = frozenset({"LLAMA_CACHE", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HOME"})


def check(started: Started, server: ServerCommand) -> Iterator[Finding]:
    """Everything wrong with the paths of a server."""
    yield from _paths(started, server)
    yield from _written(started, server)
    yield from _cache(started, server)


def _written(started: Started, server: ServerCommand) -> Iterator[Finding]:
    """What `ProtectSystem=strict` makes read-only: all but /dev, /proc, /sys and what is named."""
    if started.unit.value("ProtectSystem") != "strict" or started.partial or server.contained:
        return
    open_ = [each.lstrip("+-") for s in started.unit.all("ReadWritePaths") for each in s.text.split()]
    open_ += [each.split(":")[-1] for s in started.unit.all("BindPaths") for each in s.text.split()]
    for key, root in _FOLDERS.items():
        open_ += [f"{root}/{each.split(':')[0]}" for s in started.unit.all(key) for each in s.text.split()]
    open_ += ["/dev", "/proc"] + (["/tmp", "/var/tmp"] if started.unit.yes("PrivateTmp") else [])
    for flag, word in zip(server.arguments, server.arguments[1:], strict=False):
        path = PurePosixPath(str(word))
        asked = str(flag) in _WRITTEN and path.is_absolute() and not word.unknown
        if asked and not any(path.is_relative_to(each) for each in open_):
            message = f"`ProtectSystem=strict` lets the server write no `{word}`"
            way_out = f"add `ReadWritePaths={path.parent if str(flag) == '--log-file' else path}`"
            yield started.finding(OUT_OF_SIGHT, word.start, message, way_out)


def _cache(started: Started, server: ServerCommand) -> Iterator[Finding]:
    """Where a download is kept: below HOME, which a dynamic user does not have (man systemd.exec, DynamicUser=)."""
    fetches = server.has("-hf", "-hfr", "--hf-repo", "-mu", "--model-url") or (server.program == "vllm" and server)
    if not fetches or server.contained or _CACHES & set(server.settings) or started.partial:
        return
    if started.unit.yes("DynamicUser"):
        setting = started.unit.last("DynamicUser")
        assert setting is not None
        message = "a dynamic user has no home: what is downloaded finds no place"
        way_out = "add `CacheDirectory=llama` and `Environment=LLAMA_CACHE=/var/cache/llama`"
        if server.program == "vllm":
            way_out = "add `CacheDirectory=vllm` and `Environment=HF_HOME=/var/cache/vllm`"
        yield started.finding(OUT_OF_SIGHT, setting.at, message, way_out)


def _paths(started: Started, server: ServerCommand) -> Iterator[Finding]:
    folder = started.unit.value("WorkingDirectory")
    named = [(flag, word) for flag, word in zip(server.arguments, server.arguments[1:], strict=False)]
    paths = [word for flag, word in named if str(flag) in _PATH_FLAGS and not word.unknown and not server.contained]
    for word in paths:
        if not folder and not started.partial and not re.match(r"[/~%$\u201c\u2018-]", str(word)):
            message = (
                f"`{word}` is looked for in `/`: a service starts there, unless `WorkingDirectory=` names a folder"
            )
            yield started.finding(OUT_OF_SIGHT, word.start, message, "write the whole path, from `/` on")
    for key in ("WorkingDirectory", "EnvironmentFile"):
        for setting in started.unit.all(key):
            home = key == "WorkingDirectory" and re.fullmatch(r"-?~", setting.text)
            if not home and not re.match(r"-?[/%]", setting.text):
                message = f"`{setting.text}` is not absolute, and systemd refuses it"
                quoted = setting.text[0] in "\"'" and setting.text[1:2] == "/"
                way_out = "leave the quotes out" if quoted else "write the whole path, from `/` on"
                yield started.finding(OUT_OF_SIGHT, setting.at, message, way_out)
    folders = [Word(each.value, each.at) for each in started.unit.all("WorkingDirectory")]
    yield from _hidden(started, [*paths, *started.words[:1], *folders])


def _hidden(started: Started, paths: list[Word]) -> Iterator[Finding]:
    bound = " ".join(each.text for key in ("BindPaths", "BindReadOnlyPaths") for each in started.unit.all(key))
    home = started.unit.value("ProtectHome").lower()
    hiding: list[tuple[str, tuple[str, ...]]] = []
    if home in {"true", "yes", "1", "on", "tmpfs"}:
        hiding.append((f"ProtectHome={home}", _HOMES))
    if started.unit.yes("PrivateTmp"):
        hiding.append(("PrivateTmp=", ("/tmp/", "/var/tmp/")))
    for key, prefixes in hiding:
        for word in paths:
            text = str(word)
            if text.startswith(prefixes) and not any(text.startswith(each.split(":")[-1]) for each in bound.split()):
                message = f"`{key}` hides `{text}` from the server"
                way_out = "let it lie elsewhere, such as in /srv; or `BindReadOnlyPaths=` with its folder"
                yield started.finding(OUT_OF_SIGHT, word.start, message, way_out)
