"""vLLM, which comes as a container image: its flags."""

from __future__ import annotations

import json
from collections.abc import Mapping

from llamaherd.engines.dialect import Scratch, Server
from llamaherd.engines.traits import Traits
from llamaherd.inventory.schema import Instance, Version


class Vllm:
    """Serves safetensors, on GPUs. Nothing of it is built here."""

    kind = "vllm"
    traits = Traits(kind=kind, images=("vllm/vllm-openai", "docker.io/vllm/vllm-openai"))
    lists_devices = False
    bytes_per_job = 0
    targets: tuple[str, ...] = ()
    stop_seconds = 10
    """It ends its workers one by one."""
    scratch = Scratch("8g", executable=True, shared="8g")
    """It compiles kernels where it runs, and its workers share memory."""
    home: str | None = "/tmp"
    key_variable: str | None = "VLLM_API_KEY"
    command: tuple[str, ...] = ("vllm", "serve")
    props_path: str | None = None
    health_status: str | None = None
    counts_drafts = False
    one_process = False
    opens_ports = True
    """Its workers' TCPStore listens on all addresses, wherever the server does (its docs, security)."""

    def told(self, _declared: Instance, /) -> Mapping[str, str]:
        """None: its flags say it all."""
        return {}

    def probe(self, url: str, /) -> tuple[str, ...]:
        """By Python, as its image need not have curl."""
        return ("python3", "-c", f"import urllib.request as r; r.urlopen('{url}')")

    def build_options(self, _architectures: tuple[str, ...]) -> dict[str, str]:
        """None: it is an image."""
        return {}

    def version_options(self, _version: Version, /) -> dict[str, str]:
        """None: it is an image."""
        return {}

    def arguments(self, server: Server) -> tuple[str, ...]:
        """Those of `vllm serve`. A context is per request here, and slots share the cache as it is needed."""
        declared = server.declared
        arguments = [
            *("--model", server.model_path),
            *("--served-model-name", declared.model),
            *("--max-model-len", str(declared.context)),
            *("--max-num-seqs", str(declared.parallel)),
            *("--host", server.listen),
            *("--port", str(declared.port)),
            *server.option("--tensor-parallel-size", server.gpus if server.gpus > 1 else None),
            *server.option("--max-num-batched-tokens", declared.batch),
            *self._drafting(server),
            *self._sampling(server),
            *self._thinking(server),
        ]
        return (*arguments, *declared.extra_args)

    def _drafting(self, server: Server) -> tuple[str, ...]:
        draft = server.declared.draft
        if draft is None or draft.mtp is None:
            return ()
        return ("--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": draft.mtp}))

    def _sampling(self, server: Server) -> tuple[str, ...]:
        chosen = server.declared.sampling
        given = chosen.model_dump(exclude_none=True) if chosen else {}
        if "repeat_penalty" in given:
            given["repetition_penalty"] = given.pop("repeat_penalty")
        return ("--override-generation-config", json.dumps(given)) if given else ()

    def _thinking(self, server: Server) -> tuple[str, ...]:
        wanted = server.declared.thinking
        return () if wanted is None else ("--default-chat-template-kwargs", json.dumps({"enable_thinking": wanted}))
