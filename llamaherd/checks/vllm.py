"""Servers of vLLM: whether their share of each GPU holds the model and one request, and what the model allows."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.engines import reads_gguf
from llamaherd.engines.flags.effective import EffectiveOptions
from llamaherd.gguf.folder import FolderShape
from llamaherd.inventory.schema import Instance
from llamaherd.memory.facts import RigFacts
from llamaherd.memory.vllm import VllmUse, longest_context, served_context, vllm_use
from llamaherd.reference.cards import usable_memory
from llamaherd.text.numbers import show_mib

ACTIVATIONS = 1 << 30
"""Bytes of a share beyond weights and one request, below which a note is given: vLLM measures its activations and CUDA
graphs when it starts, and they take some hundred MiB to some GiB."""

SHARE_FULL = Rule(
    "LH152",
    "The share of a GPU that vLLM takes does not hold the model and one request.",
    why="""
    vLLM takes a share of each GPU, 0.92 unless `--gpu-memory-utilization` is set (0.9 before 2026). Weights, the cache
    of one request with the whole `context`, activations and CUDA graphs must fit into it, or vLLM ends at its start.
    Weights and cache are calculated by the files in the lock, and each figure is the least. Activations are unknown.
    It is a note where less than 1 GiB is left for them, or where options make weights or cache unknown.
    """,
    example="""
    gpus:
      cards:
        new: {model: RTX 3090, uuid: GPU-0b1f2e7a-5c1d-4c0e-9a55-3f1f0a7c2b11}
    engines:
      v: {kind: vllm, image: "vllm/vllm-openai@sha256:abababababababababababababababababababababababababababababababab"}
    models:
      8b: {hf: Qwen/Qwen3-8B, files: "*"}
    instances:
      eight:
        engine: v
        model: 8b
        context: 40960
        extra_args: --gpu-memory-utilization 0.8
        on: [new]
        port: 8003
        backend: compose
        api_key: {file: keys/coder}
    """,
    fix="""
    write a smaller `context`, add GPUs to `on`, serve a quantised model, or change the share by
    `--gpu-memory-utilization` in `extra_args`.
    """,
    sometimes=("note",),
)
SHARE_TAKEN = Rule(
    "LH153",
    "vLLM takes more of a GPU than other servers leave.",
    why="""
    When it starts, vLLM requires that its whole share of each GPU is free, and takes it: 0.92 unless
    `--gpu-memory-utilization` is set. Other servers, and what `reserved` declares, must fit into the rest.
    """,
    example="""
    engines:
      v: {kind: vllm, image: "vllm/vllm-openai@sha256:abababababababababababababababababababababababababababababababab"}
    instances:
      shared:
        engine: v
        model: 35b
        context: 8192
        on: [big]
        port: 8003
        backend: compose
        api_key: {file: keys/coder}
    """,
    fix="add `--gpu-memory-utilization` to `extra_args` with the number of the help line, or give it another GPU.",
)
REFUSED_BY_VLLM = Rule(
    "LH154",
    "vLLM does not start with this model and these values.",
    why="""
    Without a scaled position encoding, vLLM refuses a context beyond the model's `max_position_embeddings`. The
    attention heads must be divisible by the number of GPUs. Both are in the config.json that the lock has read.
    """,
    example="""
    gpus:
      cards:
        new: {model: RTX 3090, uuid: GPU-0b1f2e7a-5c1d-4c0e-9a55-3f1f0a7c2b11}
    engines:
      v: {kind: vllm, image: "vllm/vllm-openai@sha256:abababababababababababababababababababababababababababababababab"}
    models:
      8b: {hf: Qwen/Qwen3-8B, files: "*"}
    instances:
      eight:
        engine: v
        model: 8b
        context: 65536
        extra_args: --kv-cache-dtype fp8
        on: [new]
        port: 8003
        backend: compose
        api_key: {file: keys/coder}
    """,
    fix="write the value of the help line.",
)


def check_vllm_memory(subject: RigContext) -> Iterator[Finding]:
    """Report shares of GPUs that do not hold a model and one request, or that other servers take (LH152, LH153)."""
    for name, instance, effective in _servers(subject):
        shape = subject.facts.shapes.get(instance.model)
        use = vllm_use(instance, effective, shape)
        if use is None:
            continue
        yield from _shared(subject, name, use)
        if shape:
            yield from _full(subject, name, effective, shape, use)


def check_vllm_model(subject: RigContext) -> Iterator[Finding]:
    """Report a context or a number of GPUs that a model does not allow (LH154)."""
    for name, instance, effective in _servers(subject):
        shape = subject.facts.shapes.get(instance.model)
        if shape is None:
            continue
        longer = shape.positions and not shape.scaled and served_context(instance, effective) > shape.positions
        if longer and not (
            effective.get("--hf-overrides") or instance.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN")
        ):
            message = f"`{instance.model}` has {shape.positions:,} positions, and vLLM refuses a longer context"
            place = subject.document.value(("instances", name, "context"))
            yield REFUSED_BY_VLLM.at(place, message, f"write `context: {shape.positions}`, or less")
        ranks = effective.number("--tensor-parallel-size", default=max(1, len(instance.on)))
        if shape.heads and 1 <= ranks <= shape.heads and shape.heads % ranks:
            fits = [count for count in range(1, shape.heads + 1) if not shape.heads % count]
            near = sorted({max(each for each in fits if each < ranks), min(each for each in fits if each > ranks)})
            message = f"`{instance.model}` has {shape.heads} attention heads, which {ranks} GPUs cannot share evenly"
            help_ = f"give it {' or '.join(map(str, near))} GPUs in `on`"
            yield REFUSED_BY_VLLM.at(subject.document.value(("instances", name, "on")), message, help_)


def _servers(subject: RigContext) -> Iterator[tuple[str, Instance, EffectiveOptions]]:
    for name, facts in subject.facts.instances.items():
        engine = subject.rig.engines.get(facts.instance.engine)
        if engine and not reads_gguf(engine) and facts.command and facts.instance.on:
            yield name, facts.instance, facts.command.effective


def _full(
    subject: RigContext, name: str, effective: EffectiveOptions, shape: FolderShape, use: VllmUse
) -> Iterator[Finding]:
    sizes = {gpu: size for gpu in subject.rig.instances[name].on if (size := _total(subject.facts, gpu))}
    if not sizes:
        return
    gpu = min(sizes, key=lambda each: sizes[each])
    share = int(sizes[gpu] * use.share)
    place = subject.document.value(("instances", name, "on"))
    parts = ["weights"] * (use.weights is not None)
    parts += [f"one request of {use.context:,} tokens"] * (use.request is not None)
    message = f"`{name}` needs {show_mib(use.least)} of GPU `{gpu}` for {' and '.join(parts)}"
    of = f"its share of {use.share:g} is {show_mib(share)}"
    if use.least > share:
        yield SHARE_FULL.at(place, f"{message}, and {of}", _smaller(shape, effective, use, share - ACTIVATIONS))
    elif use.unknown:
        help_ = "see its log when it starts: vLLM prints what it measured"
        yield SHARE_FULL.at(place, f"not all memory of `{name}` is known: {'; '.join(use.unknown)}", help_, "note")
    elif share - use.least < ACTIVATIONS:
        left = f"{message}, and {of}: activations and CUDA graphs, which are unknown, must fit into the "
        left += show_mib(share - use.least)
        yield SHARE_FULL.at(place, left, _smaller(shape, effective, use, share - ACTIVATIONS), "note")


def _smaller(shape: FolderShape, effective: EffectiveOptions, use: VllmUse, room: int) -> str:
    """Return how to make a server smaller, so that it takes at most so many bytes."""
    left = room - (use.weights or 0)
    if left <= 0 or use.request is None:
        return "serve a quantised model, add GPUs to `on`, or write a larger `--gpu-memory-utilization` in `extra_args`"
    fits = longest_context(shape, effective, use.gpus, left)
    ways = [f"write `context: {fits}`"] if fits else []
    if effective.get("--kv-cache-dtype") is None:
        ways.append("add `--kv-cache-dtype fp8` to `extra_args`")
    return ", or ".join([*ways, "add GPUs to `on`"])


def _shared(subject: RigContext, name: str, use: VllmUse) -> Iterator[Finding]:
    facts = subject.facts
    for gpu in facts.rig.instances[name].on:
        total = _total(facts, gpu)
        if total is None:
            continue
        cards = facts.rig.gpus.cards if facts.rig.gpus else {}
        reserved = cards[gpu].reserved or 0
        held = {server: size for server in facts.rig.servers if (size := _held(facts, server, gpu, name))}
        free = total - reserved - sum(held.values())
        if int(total * use.least_share) <= free:
            continue
        beside = " and ".join([*(f"`{server}`" for server in held), *(["`reserved`"] if reserved else [])])
        share = show_mib(int(total * use.least_share))
        message = f"`{name}` takes {use.least_share:g} of GPU `{gpu}`, {share}, and {beside} "
        message += f"{'leave' if len(held) + bool(reserved) > 1 else 'leaves'} {show_mib(max(0, free))}"
        alike = [name, *(server for server in held if not _is_sized(facts, server))]
        room = total - reserved - sum(size for server, size in held.items() if server not in alike)
        fits = int(100 * room / total / len(alike)) / 100
        where = "" if alike == [name] else f" of {' and '.join(f'`{each}`' for each in alike)}"
        help_ = f"add `--gpu-memory-utilization {fits:g}` to `extra_args`{where}" if fits > 0 else "give it another GPU"
        yield SHARE_TAKEN.at(subject.document.value(("instances", name, "on")), message, help_)


def _held(facts: RigFacts, server: str, gpu: str, name: str) -> int:
    """Return the most bytes of a GPU that an instance of another server takes."""
    names = facts.rig.servers[server]
    if name in names:
        return 0
    return max((_taken(facts, each, gpu) for each in names), default=0)


def _is_sized(facts: RigFacts, server: str) -> bool:
    """Return whether a server's engine takes what its model needs, and no share."""
    return any(facts.instances[each].memory for each in facts.rig.servers[server])


def _taken(facts: RigFacts, name: str, gpu: str) -> int:
    known = facts.instances[name]
    if gpu not in known.instance.on:
        return 0
    if known.memory:
        return known.memory.on_gpus.get(gpu, 0)
    engine = facts.rig.engines.get(known.instance.engine)
    if engine is None or reads_gguf(engine) or known.command is None:
        return 0
    use, total = vllm_use(known.instance, known.command.effective, None), _total(facts, gpu)
    return int(total * use.least_share) if use and total else 0


def _total(facts: RigFacts, gpu: str) -> int | None:
    """Return the bytes of a GPU as CUDA reports them; None if they are unknown."""
    card = facts.rig.gpus.cards.get(gpu) if facts.rig.gpus else None
    return usable_memory(card.memory_bytes) if card and card.memory_bytes else None
