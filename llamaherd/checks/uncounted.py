"""What is said word for word and decides on memory, and cannot be worked out before a server runs."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import TRAITS
from llamaherd.engines.command_line import CommandLine, by_hand
from llamaherd.engines.flags.meant import Option
from llamaherd.memory.instances import placement
from llamaherd.memory.placed_by_hand import UncountedError, uncounted

SAID_ANYWAY = ("--model-draft", "--hf-repo-draft")
"""Options of which other checks say that a key says them."""


UNCOUNTED = Rule(
    "LH243",
    "An argument or a variable decides on memory, and what it takes is not known.",
    why="""
    Files that only `extra_args` or `environment` name are not in the lock: a vision projector, an adapter, a
    control vector. The figures lack what they take. With `-ngl auto`, `--fit`, or a buffer of another host, the
    engine itself decides what goes where: there is no figure then, and it is a note.
    """,
    example="""
    instances:
      coder: {extra_args: [--lora, /srv/adapters/code.gguf]}
    """,
    way_out="""
    keep as much of the GPUs free as the file has bytes. A projector that `mmproj` of a model names is counted.
    """,
    severity="warning",
    sometimes=("note",),
)


def uncounted_memory(subject: RigContext) -> Iterator[Finding]:
    """Arguments and variables that take memory which is not counted, or after which none is (LH243)."""
    for name, instance in subject.rig.instances.items():
        line = by_hand(subject.rig, instance)
        if line is None or not TRAITS[line.meant.catalogue.kind].reads_gguf:
            continue
        known = {line.meant.catalogue.find(spelling) for spelling in SAID_ANYWAY}
        for option in uncounted(line):
            if option.flag not in known:
                message = f"what {option} takes is not counted: nothing is known of it here"
                yield UNCOUNTED.at(_place(subject, name, line, option), message, _instead(option))
        header = subject.headers.get(instance.model)
        try:
            if header:
                placement(subject.rig, instance, header)
        except UncountedError as error:
            message = f"what `{name}` takes is not worked out: {error}"
            help_ = "look at `nvidia-smi` and `free -m` once it runs"
            yield UNCOUNTED.at(_place(subject, name, line, error.option), message, help_, "note")
        except ValueError:
            continue  # other checks say what is wrong with it


def _place(subject: RigContext, name: str, line: CommandLine, option: Option) -> Place:
    """Where an option is written."""
    where, instance = ("instances", name), subject.rig.instances[name]
    if option.origin == "environment":
        return subject.document.key((*where, "environment", option.words[0].partition("=")[0]))
    return subject.document.word((*where, "extra_args"), instance.extra_args, option.index - line.keys)


def _instead(option: Option) -> str:
    spellings = set(option.flag.spellings)
    if "--mmproj" in spellings:
        return "keep as much of the first GPU free as its file has bytes; `mmproj` of a model with `hf` is counted"
    if "--rpc" in spellings:
        return "what lies on the other host is not taken here: the figures are too large"
    return "keep as much of the GPUs free as its file has bytes"
