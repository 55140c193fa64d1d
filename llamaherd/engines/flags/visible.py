"""Which GPUs a server sees: what CUDA makes of its variables, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.clash import Around, Clash
from llamaherd.engines.flags.environment import ENV_VALUE
from llamaherd.engines.flags.meant import Meant, Option
from llamaherd.engines.flags.model import Flag
from llamaherd.text.numbers import whole

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
ORDERS = ("PCI_BUS_ID", "FASTEST_FIRST")
CARD = re.compile(r"-?[0-9]+|(?:GPU|MIG)-[0-9A-Fa-f/-]+|")
"""How CUDA names a card: by number, or by the beginning of its UUID; what is below zero ends the list."""


def visible(meant: Meant, around: Around) -> int | None:
    """How many GPUs a server sees."""
    chosen = meant.environment.get("CUDA_VISIBLE_DEVICES")
    if around.cards is not None or chosen is None:
        return around.cards
    names = [name.strip() for name in chosen.split(",")]
    # CUDA sees what stands before the first name that is none.
    return next((index for index, name in enumerate(names) if name[:1] in ("", "-")), len(names))


def variable(meant: Meant, name: str) -> Option:
    """A variable as an option, for what is said of it."""
    value = meant.environment[name]
    index = list(meant.environment).index(name)
    return Option(Flag(()), (f"{name}={value}",), (value,), True, "environment", index)


CUDA_ORDER = Rule(
    "LH224",
    "GPUs are chosen by numbers that may mean other GPUs.",
    why="CUDA counts the fastest GPU first unless it is told to count as nvidia-smi does.",
    example="""
    CUDA_VISIBLE_DEVICES=1 llama-server -m model.gguf -c 8192
    """,
    language="sh",
    way_out="add `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or write UUIDs. A rig names its GPUs.",
    severity="note",
)


def order(meant: Meant, _around: Around) -> Iterator[Clash]:
    """CUDA counts the fastest GPU first, nvidia-smi by place on the bus (CUDA C++ Programming Guide, appendix)."""
    chosen = meant.environment.get(VISIBLE, "")
    numbers = [part.strip() for part in chosen.split(",") if part.strip()]
    given = meant.environment.get(ORDER)
    if given is not None and given not in ORDERS:
        option = variable(meant, ORDER)
        message = f"{option} is no order that CUDA knows: it counts the fastest GPU first"
        yield Clash(ENV_VALUE, (option,), message, f"write `{ORDER}=PCI_BUS_ID`")
        return
    if given or any(whole(number) is None for number in numbers) or numbers in ([], ["0"]):
        return
    option = variable(meant, VISIBLE)
    message = f"{option} may be other GPUs than nvidia-smi's: CUDA counts the fastest first"
    yield Clash(CUDA_ORDER, (option,), message, "add `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or name UUIDs")


HIDDEN_GPUS = Rule(
    "LH258",
    "A variable leaves the server no GPU, and it must use one.",
    why="""
    CUDA reads `CUDA_VISIBLE_DEVICES` up to what is no GPU, and offers none where one stands twice. Empty, it
    hides all of them: the server then computes on the CPU.
    """,
    example="""
    CUDA_VISIBLE_DEVICES=cuda:0 llama-server -m model.gguf -ngl 99
    """,
    language="sh",
    way_out="write numbers, or UUIDs as `nvidia-smi -L` shows them, with commas between.",
)


def hidden(meant: Meant, around: Around) -> Iterator[Clash]:
    """What CUDA cannot read ends the list of GPUs that it offers; one that stands twice empties it."""
    chosen = meant.environment.get(VISIBLE)
    if chosen is None:
        return
    option = variable(meant, VISIBLE)
    names = [name.strip() for name in chosen.split(",")]
    strange = next((name for name in names if not CARD.fullmatch(name)), None)
    twice = next((name for name in names if whole(name) is not None and names.count(name) > 1), None)
    beyond = next((name for name in names if (whole(name) or 0) >= (around.cards or 1 << 30)), None)
    help_ = f"write numbers or UUIDs with commas between, such as `{VISIBLE}=0,1`"
    if strange is not None:
        message = f"`{strange}` in {option} is no card: CUDA offers those before it alone"
        yield Clash(HIDDEN_GPUS, (option,), message, help_)
    elif twice is not None:
        message = f"{option} names GPU {twice} twice: CUDA offers none then"
        yield Clash(HIDDEN_GPUS, (option,), message, "name each GPU once")
    elif beyond is not None and around.cards:
        counted = "one GPU" if around.cards == 1 else f"{around.cards} GPUs"
        message = f"{option} names GPU {beyond}, and the server is given {counted}, counted from 0"
        yield Clash(HIDDEN_GPUS, (option,), message, f"leave `{VISIBLE}` out, or count from 0 here")
    elif names[0][:1] in ("", "-") and (wants := _wants_cards(meant)):
        message = f"{option} hides every GPU, and {wants} is to use them"
        yield Clash(HIDDEN_GPUS, (option,), message, f"leave `{VISIBLE}` out, or name GPUs in it")


def _wants_cards(meant: Meant) -> Option | str | None:
    """What in the arguments wants a GPU."""
    if meant.catalogue.kind == "vllm":
        return "vLLM"
    layers = meant.get("--gpu-layers", "--n-gpu-layers")
    if layers and layers.value not in ("auto", "0", "-1"):
        return layers
    split = meant.get("--split-mode")
    return split if split and split.value in ("layer", "row", "tensor", "graph", "attn") else None
