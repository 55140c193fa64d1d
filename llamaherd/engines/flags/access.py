"""Options that open a server: from which hosts, with which key, and for which actions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines.flags.effective import Conflict, EffectiveOptions, ServerContext

NO_HOST = re.compile(r"(?=.*[:/])(?:https?://)?(?P<host>[\w.-]+|\*)(?::(?P<port>[0-9]{1,5}))?(?:/.*)?(?<!\.sock)")
"""An address with a scheme, a port or a path; neither IPv6 nor a socket is one."""
LAST_PORT = 65535

AGENTS = {
    "--tools": "clients run commands and write files on the host",
    "--agent": "clients run commands and write files on the host",
    "--ui-mcp-proxy": "clients reach every address that the host does",
}
"""Options to report even if only the host itself reaches the server: a web page or a prompt may use them."""
FILES = {
    "--mcp-servers-config": "everybody uses the programs that the server starts",
    "--mcp-servers-json": "everybody uses the programs that the server starts",
    "--path": "everybody reads the files of that folder",
    "--media-path": "everybody makes it read the files of that folder",
    "--props": "everybody changes the settings of all clients",
}
"""Options to report if other hosts reach the server without a key."""


NOT_ENCRYPTED = Rule(
    "LH221",
    "A key or a certificate alone encrypts nothing.",
    why="llama-server uses TLS where both are given. Otherwise it uses plain HTTP, without a warning.",
    example="""
    llama-server -m model.gguf -c 8192 --ssl-key-file key.pem
    """,
    language="sh",
    fix="give both, or neither.",
)


def find_missing_encryption(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report a key or a certificate alone: the server then uses no TLS (b11434, tools/server/server-http.cpp:173)."""
    key, certificate = effective.get("--ssl-key-file"), effective.get("--ssl-cert-file")
    one = key or certificate
    if one and not (key and certificate):
        missing = "--ssl-cert-file" if key else "--ssl-key-file"
        message = f"{one} alone encrypts nothing: the server uses plain HTTP without `{missing}`"
        yield Conflict(NOT_ENCRYPTED, (one,), message, f"add `{missing}`, or leave it out")


OPENS = Rule(
    "LH211",
    "An option lets clients do more than send requests to the model.",
    why="""
    Tools for agents run commands on the host. A folder that is served, or settings that every client can change, need a
    key. It is an error where other machines reach the server without a key.
    """,
    example="""
    llama-server -m model.gguf --tools all
    """,
    language="sh",
    fix="leave the option out.",
    sometimes=("warning",),
)


def find_openings(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report options that let clients do more than send requests to the model.

    llama.cpp b11434, common/arg.cpp:3354-3470, 3609-3645.
    """
    reachable = around.reachable if around.reachable is not None else not is_local(effective.text("--host"))
    safe = not reachable or is_keyed(effective, around)
    for name, what in AGENTS.items():
        option = effective.get(name)
        if option and option.on and (option.value or not option.flag.values):
            message = f"with {option} {what}"
            help_ = f"leave {option} out" if safe else f"leave {option} out, or listen on 127.0.0.1 alone"
            yield Conflict(OPENS, (option,), message, help_, "warning" if safe else "error")
    for name, what in () if safe else FILES.items():
        if (option := effective.get(name)) and option.on:
            message = f"with {option} {what}, and no key is required"
            yield Conflict(OPENS, (option,), message, f"leave {option} out, or require a key")


NO_ADDRESS = Rule(
    "LH257",
    "An address or a port is invalid.",
    why="""
    `--host` takes an address or a name, without scheme, port or path. Ports end at 65535. Each server of `--rpc`
    is `HOST:PORT`.
    """,
    example="""
    llama-server -m model.gguf --host 127.0.0.1:8080
    """,
    language="sh",
    fix="write the address alone, and the port by `--port`.",
)


def find_wrong_addresses(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report addresses and ports at which no server can listen or be reached."""
    host, port, servers = effective.get("--host"), effective.get("--port"), effective.get("--rpc")
    if host and (found := NO_HOST.fullmatch(host.value)):
        message = f"{host} is no address: an address has no scheme, port or path"
        instead = f"`--host {found['host']}`" + (f" and `--port {found['port']}`" if found["port"] else "")
        yield Conflict(NO_ADDRESS, (host,), message, f"write {instead}")
    if port and not 0 <= effective.number("--port", default=0) <= LAST_PORT:
        yield Conflict(NO_ADDRESS, (port,), f"{port} is no port", f"write a number from 1024 to {LAST_PORT}")
    for name in servers.value.split(",") if servers else ():
        if servers and not re.fullmatch(r"[^:]+:[0-9]{1,5}", name):
            message = f"`{name}` in {servers} is no address: each is `HOST:PORT`"
            yield Conflict(NO_ADDRESS, (servers,), message, "write such as `192.168.1.5:50052`")
            return


GUESSED_KEY = Rule(
    "LH226",
    "A key is a placeholder that everybody tries.",
    why="""
    Keys such as `dummy`, `changeme`, `EMPTY` or `sk-1234` stand in tutorials and in the defaults of clients. A server
    that other machines reach is as open with such a key as without one. For a rig, `herd check` also reads the keys in
    files and variables of this machine, and shows none: a placeholder there is a warning.
    """,
    example="""
    llama-server -m model.gguf --host 0.0.0.0 --api-key changeme
    """,
    language="sh",
    fix="make a key with `openssl rand -hex 32`.",
    sometimes=("warning",),
)
_NEW_KEY = "make a key with `openssl rand -hex 32`, or let the server listen on 127.0.0.1"
_WORDS = frozenset(
    (
        *("abc", "abc123", "admin", "api", "apikey", "bearer", "changeit", "changeme", "default", "demo", "dummy"),
        *("empty", "example", "fake", "foo", "foobar", "hello", "key", "letmein", "llama", "llamacpp", "lmstudio"),
        *("local", "localhost", "mykey", "na", "nokey", "none", "notneeded", "notused", "null", "ollama", "openai"),
        *("pass", "password", "placeholder", "qwerty", "replaceme", "secret", "sk", "skdummy", "sktest", "skxxx"),
        *("test", "test123", "testing", "testkey", "todo", "token", "tokenabc123", "vllm", "yourkey", "yourtoken"),
    )
)
_GUESSES = re.compile(
    r"(?:sk)?(?:my|your|the|some)?(?:secret|openai|llama|api|vllm)*(?:api)?(?:key|token)(?:here|example)?[0-9]{0,4}"
    r"|(?:sk)?(?:no|not)(?:api)?key(?:required|needed)?|(?:sk)?(?:12345?6?7?8?9?0?|x{3,}|0{3,}|1{3,}|a{3,})"
    r"|sk.{0,40}example|<.*>"
)


def is_placeholder(key: str) -> bool:
    """Return whether a key is one of those in tutorials. Case, blanks, dashes, dots and underscores do not matter."""
    bare = re.sub(r"[-_. ]", "", key.lower())
    return bare in _WORDS or _GUESSES.fullmatch(bare) is not None


def find_guessed_keys(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report placeholders as the key of a server that other hosts reach."""
    host, option = effective.get("--host"), effective.get("--api-key")
    # vLLM listens at every address by default.
    everywhere = not is_local(host.value) if host else effective.catalogue.kind == "vllm"
    reachable = everywhere if around.reachable is None else around.reachable
    keys = option.value if option else effective.environment.get("VLLM_API_KEY", "")
    place = option or host
    if reachable and place and any(map(is_placeholder, filter(None, keys.split(",")))):
        what = str(option) if option else "`VLLM_API_KEY`"
        message = f"{what} is a placeholder that everybody tries, and other machines reach the server"
        yield Conflict(GUESSED_KEY, (place,), message, _NEW_KEY)


def is_local(host: str) -> bool:
    """Return whether only the machine itself reaches a server that listens there, which is also the default."""
    names = [name.strip().strip("[]") for name in host.split(",") if name.strip()]
    return all(name.startswith("127.") or name in ("localhost", "::1") or name.endswith(".sock") for name in names)


def is_keyed(effective: EffectiveOptions, around: ServerContext) -> bool:
    """Return whether the server requires a key."""
    variable = {"LLAMA_API_KEY", "VLLM_API_KEY"} & set(effective.environment)
    return around.keyed or bool(variable) or bool(effective.get("--api-key", "--api-key-file"))
