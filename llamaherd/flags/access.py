"""Options that open a server: who reaches it, with which key, and what they may do there."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.flags import codes
from llamaherd.flags.clash import Around, Clash
from llamaherd.flags.meant import Meant

AGENTS = {
    "--tools": "clients run commands and write files on the host",
    "--agent": "clients run commands and write files on the host",
    "--ui-mcp-proxy": "clients reach every address that the host does",
}
"""What is said of these even where only the host itself reaches the server: a web page or a prompt may use them."""
FILES = {
    "--mcp-servers-config": "everybody uses the programs that the server starts",
    "--mcp-servers-json": "everybody uses the programs that the server starts",
    "--path": "everybody reads the files of that folder",
    "--media-path": "everybody makes it read the files of that folder",
    "--props": "everybody changes the settings of all clients",
}
"""What is said of these where others reach the server without a key."""


def encrypted(meant: Meant, _around: Around) -> Iterator[Clash]:
    """TLS is spoken where both are given, and else not, without a word (b11434, tools/server/server-http.cpp:173)."""
    key, certificate = meant.get("--ssl-key-file"), meant.get("--ssl-cert-file")
    one = key or certificate
    if one and not (key and certificate):
        missing = "--ssl-cert-file" if key else "--ssl-key-file"
        message = f"{one} alone encrypts nothing: the server speaks plain HTTP without `{missing}`"
        yield Clash(codes.NOT_ENCRYPTED, (one,), message, f"add `{missing}`, or leave it out")


def openings(meant: Meant, around: Around) -> Iterator[Clash]:
    """What lets clients do more than ask the model (llama.cpp b11434, common/arg.cpp:3354-3470, 3609-3645)."""
    reachable = around.reachable if around.reachable is not None else not is_local(meant.text("--host"))
    safe = not reachable or is_keyed(meant, around)
    for name, what in AGENTS.items():
        option = meant.get(name)
        if option and option.on and (option.value or not option.flag.values):
            message = f"with {option} {what}"
            help_ = f"leave {option} out" if safe else f"leave {option} out, or listen on 127.0.0.1 alone"
            yield Clash(codes.OPENS, (option,), message, help_, "warning" if safe else "error")
    for name, what in () if safe else FILES.items():
        if (option := meant.get(name)) and option.on:
            message = f"with {option} {what}, and no key is asked for"
            yield Clash(codes.OPENS, (option,), message, f"leave {option} out, or ask for a key")


def is_local(host: str) -> bool:
    """Whether only the machine itself reaches a server that listens there; without an address it does so."""
    names = [name.strip().strip("[]") for name in host.split(",") if name.strip()]
    return all(name.startswith("127.") or name in ("localhost", "::1") or name.endswith(".sock") for name in names)


def is_keyed(meant: Meant, around: Around) -> bool:
    """Whether the server asks for a key."""
    variable = {"LLAMA_API_KEY", "VLLM_API_KEY"} & set(meant.environment)
    return around.keyed or bool(variable) or bool(meant.get("--api-key", "--api-key-file"))
