"""What llama.cpp and its fork have in common besides their flags."""

from __future__ import annotations

from llamaherd.engines.dialect import Scratch


class LlamaFamily:
    """A llama-server."""

    stop_seconds = 1
    """An idle one takes less. One that streams may hang for ever: the handler of the signal takes locks that the thread
    which it interrupted holds (tools/server/server.cpp of b11434, signal_handler)."""
    scratch = Scratch("64m")
    home: str | None = None
    key_variable: str | None = None
    command: tuple[str, ...] = ()
    props_path: str | None = "/props"
    health_status: str | None = "ok"
    counts_drafts = True
    one_process = True
    opens_ports = False

    def probe(self, url: str, /) -> tuple[str, ...]:
        """By curl, which the published images have."""
        return ("curl", "-fs", "-o", "/dev/null", url)
