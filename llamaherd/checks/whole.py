"""The whole command line and environment of an instance's server: what comes from keys, and what is written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Place
from llamaherd.engines.command_line import command_line
from llamaherd.engines.flags.meant import Meant, Option
from llamaherd.engines.flags.model import Catalogue, Flag
from llamaherd.inventory.schema import Instance

KEY_OF_FLAG: Mapping[str, str] = {
    "--model": "model",
    "--alias": "model",
    "--served-model-name": "model",
    "--ctx-size": "context",
    "--max-model-len": "context",
    "--cache-type-k": "kv",
    "--cache-type-v": "kv",
    "--flash-attn": "flash_attention",
    "--parallel": "parallel",
    "--max-num-seqs": "parallel",
    "--threads": "threads",
    "--host": "listen",
    "--port": "port",
    "--device": "on",
    "--gpu-layers": "gpu_layers",
    "--n-gpu-layers": "gpu_layers",
    "--split-mode": "split",
    "--tensor-split": "tensor_split",
    "--tensor-parallel-size": "on",
    "--cpu-moe": "experts_on_cpu",
    "--n-cpu-moe": "experts_on_cpu",
    "--batch-size": "batch",
    "--ubatch-size": "ubatch",
    "--numa": "numa",
    "--load-mode": "mmap",
    "--no-mmap": "mmap",
    "--mlock": "mlock",
    "--no-warmup": "warmup",
    "--spec-type": "draft",
    "--spec-draft-n-max": "draft",
    "--spec-draft-p-min": "draft",
    "--speculative-config": "draft",
    "-mtp": "draft",
    "--draft-max": "draft",
    "--draft-p-min": "draft",
    "--spec-draft-model": "draft",
    "--spec-draft-ngl": "draft",
    "--model-draft": "draft",
    "--n-gpu-layers-draft": "draft",
    "--temp": "sampling",
    "--top-p": "sampling",
    "--top-k": "sampling",
    "--min-p": "sampling",
    "--presence-penalty": "sampling",
    "--repeat-penalty": "sampling",
    "--seed": "sampling",
    "--reasoning": "thinking",
    "--cache-reuse": "cache_reuse",
    "--api-key": "api_key",
    "--api-key-file": "api_key",
}
"""The key of an instance from which llamaherd sets a flag, by one of the flag's spellings."""


@dataclass(frozen=True)
class Whole:
    """What one instance's server is told, and how much of that comes from keys."""

    subject: RigContext
    name: str
    instance: Instance
    told: Meant
    keys: int
    """How many arguments are from keys; those of `extra_args` follow."""

    def key(self, option: Option) -> str | None:
        """The key that an option comes from; None for what is written word for word."""
        if option.origin == "environment" or option.index >= self.keys:
            return None
        return self.keys_of.get(option.flag) or "experts_on_cpu"  # whose override is the only flag without a row

    @cached_property
    def keys_of(self) -> Mapping[Flag, str]:
        """The keys that say flags, by each."""
        found = ((self.told.catalogue.find(name), key) for name, key in KEY_OF_FLAG.items())
        return {flag: key for flag, key in reversed(tuple(found)) if flag}  # of two names of one flag, the first counts

    def place(self, option: Option) -> Place:
        """Where an option is written."""
        where, document = ("instances", self.name), self.subject.document
        if option.origin == "environment":
            name = option.words[0].partition("=")[0]
            return document.key((*where, "environment", name))
        if key := self.key(option):
            return document.value((*where, key))
        return document.word((*where, "extra_args"), self.instance.extra_args, option.index - self.keys)


def whole(subject: RigContext, name: str, instance: Instance, known: Catalogue) -> Whole:
    """The whole command line and environment of an instance's server."""
    line = command_line(subject.rig, instance, known)
    return Whole(subject, name, instance, line.meant, line.keys)
