"""The visible GPUs of a server, and options that place a model on them: layers, shares, devices, fitting."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines.flags.arguments import NO_CHOICE
from llamaherd.engines.flags.definitions import Flag
from llamaherd.engines.flags.effective import OFF, Conflict, EffectiveOptions, Option, ServerContext
from llamaherd.engines.flags.environment import ENV_VALUE
from llamaherd.text.numbers import whole_number

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
ORDERS = ("PCI_BUS_ID", "FASTEST_FIRST")
CARD = re.compile(r"-?[0-9]+|(?:GPU|MIG)-[0-9A-Fa-f/-]+|")
"""CUDA's name of a GPU: its number, or the beginning of its UUID. A negative number ends the list."""


def visible_gpus(effective: EffectiveOptions, around: ServerContext) -> int | None:
    """Return the number of GPUs that a server can use; None if that is unknown."""
    chosen = effective.environment.get("CUDA_VISIBLE_DEVICES")
    if around.cards is not None or chosen is None:
        return around.cards
    names = [name.strip() for name in chosen.split(",")]
    # CUDA reads the list up to the first name that is invalid.
    return next((index for index, name in enumerate(names) if name[:1] in ("", "-")), len(names))


def variable_option(effective: EffectiveOptions, name: str) -> Option:
    """Return a variable as an option, for a conflict."""
    value = effective.environment[name]
    index = list(effective.environment).index(name)
    return Option(Flag(()), (f"{name}={value}",), (value,), True, "environment", index)


CUDA_ORDER = Rule(
    "LH224",
    "GPUs are chosen by numbers that may mean other GPUs.",
    why="CUDA counts the fastest GPU first, unless a variable sets nvidia-smi's order.",
    example="""
    CUDA_VISIBLE_DEVICES=1 llama-server -m model.gguf -c 8192
    """,
    language="sh",
    fix="add `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or write UUIDs. A rig names its GPUs.",
    severity="note",
)


def find_gpu_order(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report GPUs by number without an order.

    CUDA counts the fastest GPU first, nvidia-smi by place on the bus (CUDA C++ Programming Guide, appendix).
    """
    chosen = effective.environment.get(VISIBLE, "")
    numbers = [part.strip() for part in chosen.split(",") if part.strip()]
    given = effective.environment.get(ORDER)
    if given is not None and given not in ORDERS:
        option = variable_option(effective, ORDER)
        message = f"{option} is not an order of CUDA, which counts the fastest GPU first"
        yield Conflict(ENV_VALUE, (option,), message, f"write `{ORDER}=PCI_BUS_ID`")
        return
    if given or any(whole_number(number) is None for number in numbers) or numbers in ([], ["0"]):
        return
    option = variable_option(effective, VISIBLE)
    message = f"{option} may be other GPUs than nvidia-smi's: CUDA counts the fastest first"
    yield Conflict(CUDA_ORDER, (option,), message, "add `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or name UUIDs")


HIDDEN_GPUS = Rule(
    "LH258",
    "A variable leaves the server no GPU, and it must use one.",
    why="""
    CUDA reads `CUDA_VISIBLE_DEVICES` up to an invalid entry, and offers no GPU if one occurs twice. Empty, it hides all
    of them: the server then computes on the CPU.
    """,
    example="""
    CUDA_VISIBLE_DEVICES=cuda:0 llama-server -m model.gguf -ngl 99
    """,
    language="sh",
    fix="write numbers, or UUIDs as `nvidia-smi -L` shows them, with commas between.",
)


def find_hidden_gpus(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report lists of GPUs that hide some: an invalid entry ends the list, a repeated one empties it."""
    chosen = effective.environment.get(VISIBLE)
    if chosen is None:
        return
    option = variable_option(effective, VISIBLE)
    names = [name.strip() for name in chosen.split(",")]
    strange = next((name for name in names if not CARD.fullmatch(name)), None)
    twice = next((name for name in names if whole_number(name) is not None and names.count(name) > 1), None)
    beyond = next((name for name in names if (whole_number(name) or 0) >= (around.cards or 1 << 30)), None)
    help_ = f"write numbers or UUIDs with commas between, such as `{VISIBLE}=0,1`"
    if strange is not None:
        message = f"`{strange}` in {option} is no card: CUDA offers those before it alone"
        yield Conflict(HIDDEN_GPUS, (option,), message, help_)
    elif twice is not None:
        message = f"{option} names GPU {twice} twice: CUDA offers none then"
        yield Conflict(HIDDEN_GPUS, (option,), message, "name each GPU once")
    elif beyond is not None and around.cards:
        counted = "one GPU" if around.cards == 1 else f"{around.cards} GPUs"
        message = f"{option} names GPU {beyond}, and the server is given {counted}, counted from 0"
        yield Conflict(HIDDEN_GPUS, (option,), message, f"leave `{VISIBLE}` out, or count from 0 here")
    elif names[0][:1] in ("", "-") and (wants := _wants_cards(effective)):
        message = f"{option} hides every GPU, and {wants} is to use them"
        yield Conflict(HIDDEN_GPUS, (option,), message, f"leave `{VISIBLE}` out, or name GPUs in it")


def _wants_cards(effective: EffectiveOptions) -> Option | str | None:
    """Return the option that needs a GPU, or the engine's name if it always does; None if no option does."""
    if effective.catalogue.kind == "vllm":
        return "vLLM"
    device = effective.text("--device")
    if device and "cuda" not in device.lower():
        return None  # such as Vulkan0
    layers = effective.get("--gpu-layers", "--n-gpu-layers")
    if layers and layers.value not in ("auto", "0", "-1"):
        return layers
    split = effective.get("--split-mode")
    return split if split and split.value in ("layer", "row", "tensor", "graph", "attn") else None


LAYERS, EXPERTS = ("--gpu-layers", "--n-gpu-layers"), ("--override-tensor", "--cpu-moe", "--n-cpu-moe")


def attention_off(effective: EffectiveOptions) -> Option | None:
    option = effective.get("--flash-attn")
    return option if option and option.value.lower() in OFF else None


NO_FIT = Rule(
    "LH057",
    "The engine must fit the model to the GPU by itself, and something is placed by hand.",
    why="""
    llama.cpp fits nothing where layers, experts or shares are given (a note); ik_llama.cpp does not start with `--fit`
    and placed tensors (an error).
    """,
    example="""
    instances:
      coder: {gpu_layers: 30, extra_args: [--fit, "on"]}
    """,
    fix="leave out one of the two. `herd show` calculates what fits.",
    sometimes=("note",),
)


def find_useless_fit(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report `--fit` together with explicit placement.

    llama.cpp b11434, common/fit.cpp:183; ik_llama.cpp 8337e4cd3, src/llama.cpp:4281-4286.
    """
    fit = effective.get("--fit")
    if fit is None or fit.value.lower() in OFF:
        return
    fork = effective.catalogue.kind == "ik_llama.cpp"
    names = EXPERTS if fork else (*EXPERTS, *LAYERS, "--tensor-split")
    placed = [option for name in names if (option := effective.get(name)) and option.value not in ("auto", "-1")]
    if placed and fork:
        message = f"ik_llama.cpp does not start with both {fit} and {placed[0]}"
        yield Conflict(NO_FIT, (fit, placed[0]), message, "leave out one of the two")
    elif placed:
        message = f"llama.cpp fits nothing where something is placed by hand, and here {placed[0]} does so"
        yield Conflict(NO_FIT, (fit, placed[0]), message, f"leave out {fit}, or {placed[0]}", "note")


NO_SPLIT = Rule(
    "LH052",
    "The engine does not start with this split mode.",
    why="""
    llama.cpp has `layer`, `tensor` and `none`; its `row` fails to load on CUDA since b9890. ik_llama.cpp has
    `layer`, `graph` and `none`; `graph` needs two GPUs. `tensor` needs flash attention.
    """,
    example="""
    instances:
      coder: {split: row}
    """,
    fix="write `split: layer`, which every engine and model takes. The help line names the fast one of the engine.",
)


def find_impossible_split(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    split = effective.get("--split-mode")
    if split is None:
        return
    cards = visible_gpus(effective, around)
    if split.value in ("graph", "attn") and effective.catalogue.kind == "ik_llama.cpp" and cards == 1:
        message = f"ik_llama.cpp does not start with {split} and one GPU"
        yield Conflict(NO_SPLIT, (split,), message, f"leave out {split}")
    attention = attention_off(effective)
    if split.value == "tensor" and attention:
        message = f"llama.cpp does not start with {split} and without flash attention"
        yield Conflict(NO_SPLIT, (split, attention), message, f"leave out {attention}, or write `--split-mode layer`")


TOO_MANY = Rule(
    "LH220",
    "More GPUs or slots are requested than there are.",
    why="The GPUs of CUDA_VISIBLE_DEVICES or `on` are counted from 0. llama.cpp serves 256 slots at most.",
    example="""
    CUDA_VISIBLE_DEVICES=0 llama-server -m model.gguf -c 8192 -mg 1
    """,
    language="sh",
    fix="name existing GPUs, or fewer slots.",
    sometimes=("warning",),
)


def find_excess_shares(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report more shares than GPUs, and a main GPU that does not exist."""
    cards, shares = visible_gpus(effective, around), effective.get("--tensor-split")
    parts = [part for part in shares.value.replace("/", ",").split(",") if part] if shares else []
    if shares and cards is not None and len(parts) > max(1, cards):
        message = f"{shares} has {len(parts)} shares, and the server has {_counted(cards, 'GPU')}"
        yield Conflict(TOO_MANY, (shares,), message, "give one share for each of its GPUs", "warning")
    main = effective.get("--main-gpu")
    if main and cards is not None and effective.number("--main-gpu", default=0) >= max(1, cards):
        message = f"{main} names a missing GPU: the server has {_counted(cards, 'GPU')}, counted from 0"
        yield Conflict(TOO_MANY, (main,), message, f"leave out {main}")


def _counted(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number} {what}s" if number else f"no {what}"


NEGATIVE_LAYERS = Rule(
    "LH259",
    "A number of layers is negative, which each engine reads in another way.",
    why="""
    llama.cpp reads -1 as `auto`, and lower numbers as `all`. ik_llama.cpp reads -1 as its default, and puts no layer on
    a GPU below that.
    """,
    example="""
    llama-server -m model.gguf -ngl -1
    """,
    language="sh",
    fix="write `-ngl all`, or 999 for ik_llama.cpp.",
    sometimes=(
        "warning",
        "note",
    ),
)


def find_negative_layers(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report negative numbers of layers.

    llama.cpp b11434, common/arg.cpp:2795-2800, src/llama-model.cpp:2010; ik_llama.cpp 67268c8fd,
    common/common.cpp:3425, src/llama.cpp:2325: below -1 all layers stay in RAM.
    """
    option = effective.get(*LAYERS)
    number = effective.number(*LAYERS, default=0)
    if option is None or number >= 0:
        return
    if effective.catalogue.kind == "llama.cpp":
        what = "as many layers as fit, as `auto` does" if number == -1 else "all layers, as `all` does"
        message = f"{option} puts {what}, and other programs take it for something else"
        help_ = f"write `{option.words[0]} all` for all of them, or a number from 0 on"
        yield Conflict(NEGATIVE_LAYERS, (option,), message, help_, "note")
    elif number < -1:
        message = f"{option} puts no layer on a card: ik_llama.cpp counts them off from the end"
        yield Conflict(NEGATIVE_LAYERS, (option,), message, f"write `{option.words[0]} 999` for all of them")
    else:
        message = f"{option} leaves the number of layers to the version: older ones put none on a GPU"
        help_ = f"write `{option.words[0]} 999` for all of them"
        yield Conflict(NEGATIVE_LAYERS, (option,), message, help_, "warning")


def find_wrong_devices(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report names of missing devices (llama.cpp b11434, common/arg.cpp:1122-1142, ggml_backend_dev_by_name)."""
    for name in ("--device", "--spec-draft-device", "--device-draft"):
        option = effective.get(name)
        names = [each.strip() for each in option.value.split(",")] if option else []
        if option and names and all(re.fullmatch(r"[0-9]{1,3}", each) for each in names):
            instead = ",".join(f"CUDA{each}" for each in names)
            message = f"{option} names no device: they have names, as `--list-devices` shows them"
            yield Conflict(NO_CHOICE, (option,), message, f"write `{option.words[0]} {instead}`")
            return
        cards = visible_gpus(effective, around)
        numbers = [int(found[1]) for each in names if (found := re.fullmatch(r"CUDA([0-9]{1,3})", each))]
        if option and cards is not None and any(number >= cards for number in numbers):
            message = f"{option} names a missing GPU: the server has {_counted(cards, 'GPU')}, from CUDA0 on"
            yield Conflict(TOO_MANY, (option,), message, f"leave out {option}")
            return
