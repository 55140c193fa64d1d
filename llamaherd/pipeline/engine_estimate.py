"""Estimate the memory of servers by llama.cpp's own tool on the host, to compare it with our arithmetic.

`llama-fit-params -fitp on` reads headers alone and prints MiB per device. Its figure lacks a draft: the memory of a
draft is added from the arithmetic. Facts: llama.cpp b11434, common/fit.cpp:1088-1113,
tools/fit-params/fit-params.cpp:31-80.

One connection serves all builds of a rig. If a model is not on the host yet, a second connection sends its header of
a few MB. The host makes a file of the header and a hole in place of the weights. No weights are read.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from llamaherd.diagnostics.findings import HubError
from llamaherd.gguf.header import Header
from llamaherd.gguf.parse import GgufError
from llamaherd.gguf.shards import fetch_header, read_header
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.layout import ASK_USER
from llamaherd.lock import Lock
from llamaherd.lock.hub import token_for
from llamaherd.memory.estimate import Memory, Use, add_memory, estimate
from llamaherd.memory.facts import RigFacts
from llamaherd.memory.instances import InstanceMemory, capacity, summed_memory
from llamaherd.memory.placement import HOST, Placement
from llamaherd.onhost.engine_memory import (
    EstimateInput,
    FileInput,
    HeaderInput,
    InstanceInput,
    ModelInput,
    ToolRun,
    ToolRuns,
)
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.plan import Estimate, InstancePlan, ModelPlan, Plan
from llamaherd.plan.devices import memory_held, server_environment
from llamaherd.text.terminal import one_line

MIB = 1024**2

_ROW = re.compile(r"^(\S+) ([0-9]{1,12}) ([0-9]{1,12}) ([0-9]{1,12}) *$", re.MULTILINE)
_BUFFER = re.compile(r"(\S+) +(model|KV|RS) buffer size = +([0-9]{1,12}\.[0-9]+) MiB")
_CARD = re.compile(r"CUDA([0-9]{1,4})")


class NoFigureError(ValueError):
    """The tool printed no figures; the message contains what it printed instead."""


def tool_arguments(placement: Placement, model: str) -> tuple[str, ...]:
    """Return the arguments of `llama-fit-params`, which it shares with the server; the first shard is the model.

    Raises ValueError for a placement of ik_llama.cpp, which has no such tool, and for unified slots, which the tool
    does not offer.
    """
    if not placement.does.reports_memory:
        raise ValueError("only llama.cpp has llama-fit-params")
    if placement.kv_unified and placement.parallel > 1:
        raise ValueError("llama-fit-params has no option for slots that share one cache")
    layers = "all" if placement.gpu_layers is None else str(placement.gpu_layers)
    split = placement.tensor_split
    overrides = ",".join(f"{pattern}={_buffer(target)}" for pattern, target in placement.overrides)
    return (
        *("-m", model, "-fitp", "on", "-c", str(placement.context), "-np", str(placement.parallel)),
        *("-ctk", placement.type_k, "-ctv", placement.type_v),
        *("-b", str(placement.batch), "-ub", str(placement.ubatch)),
        *("-fa", "on" if placement.flash_attention else "off"),
        "--no-repack",  # weights that a CPU build repacks are in no row of what it prints (common/fit.cpp:80-98)
        *(("-ngl", layers) if placement.devices else ()),
        *(("-sm", placement.split, "-mg", str(placement.main_device)) if placement.devices > 1 else ()),
        *(("-ts", ",".join(f"{share:g}" for share in split)) if split else ()),
        *(("-ot", overrides) if overrides else ()),
        *(("-nkvo",) if placement.no_kv_offload else ()),
        *(() if placement.op_offload else ("--no-op-offload",)),
        *(("--swa-full",) if placement.swa_full else ()),
    )


def parse_figures(text: str) -> Memory:
    """Return the tool's output as bytes. Its one figure for the context is in `kv`. Raises NoFigureError."""
    rows = [(name, *(int(figure) * MIB for figure in figures)) for name, *figures in _ROW.findall(text)]
    uses = {name: Use(weights=weights, kv=kv, compute=compute) for name, weights, kv, compute in rows}
    if "Host" not in uses:
        printed = text.strip().splitlines()
        raise NoFigureError(
            one_line(f"llama-fit-params printed no figures: {printed[-1] if printed else 'nothing at all'}")
        )
    return Memory(devices=tuple(use for name, use in uses.items() if name != "Host"), host=uses["Host"])


def parse_server_log(text: str, devices: int) -> Memory:
    """Return the bytes of weights, KV and state by a server's log, the draft's added to the model's.

    `text` is what it logs with `-lv 4`. Compute is left out: buffers that are made anew are logged anew.
    Raises NoFigureError.
    """
    uses = [Use()] * (devices + 1)
    for name, what, figure in _BUFFER.findall(text):
        size, gpu = round(float(figure) * MIB), _CARD.fullmatch(name)
        index = int(gpu[1]) if gpu and int(gpu[1]) < devices else devices
        part = {"model": Use(weights=size), "KV": Use(kv=size), "RS": Use(state=size)}[what]
        uses[index] = add_memory(uses[index], part)
    if not any(use.weights for use in uses):
        raise NoFigureError("the log contains no buffers; start the server with `-lv 4`")
    return Memory(devices=tuple(uses[:devices]), host=uses[devices])


def with_draft_memory(engine: Memory, header: Header, placement: Placement) -> Memory:
    """Return the engine's figures as those of a server: with a draft, and with the server's few rows of logits.

    The tool reserves a row for every token of a batch; the arithmetic has the compute buffers of these rows.
    Raises ValueError as `estimate` does, and if the tool's number of GPUs differs from the placement's.
    """
    devices = engine.devices
    if placement.split == "none" and len(devices) == 1:
        # It prints the one GPU alone (src/llama.cpp:289-301).
        devices = tuple(devices[0] if gpu == placement.main_device else Use() for gpu in range(placement.devices))
    if len(devices) != placement.devices:
        raise ValueError(f"the tool printed {len(devices)} GPUs, but the instance is on {placement.devices}")
    ours, asked = estimate(header, placement), estimate(header, without_draft(placement))
    return Memory(
        devices=tuple(_as_served(*uses) for uses in zip(devices, ours.devices, asked.devices, strict=True)),
        host=_as_served(engine.host, ours.host, asked.host),
        doubts=ours.doubts,
    )


def without_draft(placement: Placement) -> Placement:
    """Return the placement of the tool: without a draft, nothing mapped, and as many rows of logits as tokens."""
    return replace(placement, mtp=0, outputs=placement.ubatch, mmap=False)


def _as_served(engine: Use, ours: Use, asked: Use) -> Use:
    """Return the engine's figures, corrected by the differences between the tool's input and the server."""
    return replace(engine, compute=max(0, engine.compute + ours.compute - asked.compute), draft=ours.draft)


def _buffer(target: str | int) -> str:
    """Return a buffer type's name: `CPU`, or a CUDA GPU's."""
    return target if isinstance(target, str) else "CPU" if target == HOST else f"CUDA{target}"


TOOL = "llama-fit-params"
TOOL_SECONDS = 120
"""For one instance: it opens the GPUs and reads a header, which takes seconds on a slow disk."""

_BASE_SECONDS = 120
_NOTED = 8 << 20
"""The least bytes of a doubt that the tool counts more than a server takes."""

_WHY = (
    re.compile(r"^[\d.]+ E (?:\w+: )?(.+)$", re.MULTILINE),
    re.compile(r"^error(?: while handling argument)?:? *(.+)$", re.MULTILINE),
    re.compile(r"^ *what\(\): +(.+)$", re.MULTILINE),
    re.compile(r"^(.*\S)\s*\Z", re.MULTILINE),
)
"""Patterns of the tool's error, the best one first: a log line, an argument, an exception, the last line."""

EngineEstimates = Mapping[str, Estimate | str]
"""The memory of each instance, or a sentence with the reason why it is unknown."""


@dataclass(frozen=True)
class Shard:
    """The header of one file of a model, and the size in bytes that the whole file has."""

    name: str
    size: int
    header: bytes

    @property
    def packed(self) -> str:
        """Return the header, compressed and in base64."""
        return base64.b64encode(gzip.compress(self.header, mtime=0)).decode()


@dataclass(frozen=True)
class EstimateRequest:
    """One run of the tool for an instance."""

    given: InstanceInput
    held: InstanceMemory
    """The same by arithmetic, with what the tool does not count."""


def query_engines(rig: Rig, plan: Plan, lock: Lock, remote: Remote) -> EngineEstimates:
    """Return the memory of each instance by its own engine, or why there is no figure. Raises RemoteError."""
    found: dict[str, Estimate | str] = {}
    open_: list[EstimateRequest] = []
    facts = locked_facts(rig, lock)
    for planned in plan.instances:
        asked = estimate_request(facts, plan, planned)
        if isinstance(asked, str):
            found[planned.name] = asked
        else:
            open_.append(asked)
    runs = _runs(remote, plan, open_, {}) if open_ else {}
    absent = [each for each in open_ if is_absent(each.given.name, runs)]
    shards, failed = headers(plan, {each.given.model for each in absent})
    brought = [each for each in absent if each.given.model in shards]
    again = _runs(remote, plan, brought, shards) if brought else {}
    for each in open_:
        if each.given.model in failed and each in absent:
            found[each.given.name] = failed[each.given.model]
        else:
            found[each.given.name] = judge_run(rig, each, again if each in brought else runs)
    return {planned.name: found[planned.name] for planned in plan.instances}


def estimate_request(facts: RigFacts, plan: Plan, planned: InstancePlan) -> EstimateRequest | str:
    """Return the run of the tool for an instance, or a sentence with the reason why there is none."""
    if planned.members:
        return "it loads one model after another: `herd fit` prints the memory of each"
    declared, known = facts.rig.instances[planned.name], facts.instances[planned.name]
    build = next((build for build in plan.builds if build.id == planned.build), None)
    if build is None:
        return f"engine `{planned.engine}` is an image: only an engine that is built on the host can estimate"
    if TOOL not in build.targets:
        return f"{build.kind} has no {TOOL}"
    if known.header is None:
        return f"the header of model `{declared.model}` is not in the lock: run `herd lock`"
    if unknown := [gpu for gpu in declared.on if capacity(facts.rig, gpu) is None]:
        return f"the memory of GPU `{unknown[0]}` is not known"
    # The tool runs on the host, where a container's GPUs have the host's numbers.
    outside = declared.model_copy(update={"backend": "systemd"})
    if known.memory is None:
        return str(known.fault)
    try:
        arguments = tool_arguments(known.memory.placement, planned.model_path)
    except ValueError as error:
        return str(error)
    given = InstanceInput(
        name=planned.name,
        model=planned.model,
        build=build.folder,
        path=planned.model_path,
        environment=tuple(f"{key}={value}" for key, value in server_environment(facts.rig, outside, build).items()),
        arguments=arguments,
    )
    return EstimateRequest(given, known.memory)


def estimate_input(
    plan: Plan, requests: Iterable[EstimateRequest], hollow: Mapping[str, tuple[Shard, ...]]
) -> EstimateInput:
    """Return the input of the tool; `hollow` contains the shards of models that may be absent from the host."""
    instances = tuple(each.given for each in requests)
    models = tuple(
        ModelInput(
            name=model.name,
            folder=model.folder,
            path=model.path,
            files=tuple(FileInput(file.name, file.sha256) for file in model.files),
            headers=tuple(HeaderInput(each.name, each.size, each.packed) for each in hollow.get(model.name, ())),
        )
        for model in plan.models
        if model.name in {each.model for each in instances}
    )
    return EstimateInput(models, instances, TOOL, TOOL_SECONDS, ASK_USER)


def is_absent(name: str, runs: Mapping[str, ToolRun]) -> bool:
    """Return whether an instance's engine is on the host, and its model is not."""
    return name in runs and runs[name].state == "absent"


def judge_run(rig: Rig, asked: EstimateRequest, runs: Mapping[str, ToolRun]) -> Estimate | str:
    """Return the memory of one instance by the tool, or a sentence with the reason why it is unknown."""
    run = runs.get(asked.given.name, ToolRun("absent"))
    if run.state == "unbuilt":
        return f"engine `{asked.held.instance.engine}` is not built on {rig.rig} yet: run `herd up {rig.rig}`"
    if run.state == "absent":
        return f"model `{asked.given.model}` is not on {rig.rig}, which is not set up yet: run `herd up {rig.rig}`"
    if run.code != 0:
        return _failure(run.code, run.log)
    held = asked.held
    try:
        memory = with_draft_memory(parse_figures(run.figures), held.header, held.placement)
    except ValueError as error:
        return str(error)
    return Estimate(
        source="engine",
        holds=memory_held(rig, held, summed_memory(memory, held.extra)),
        doubts=(*_doubts(held), *held.extra.doubts),
    )


def _doubts(held: InstanceMemory) -> tuple[str, ...]:
    """Return the known differences between the tool and the server."""
    placed = held.placement
    doubts = []
    if placed.mtp or held.instance.draft:
        doubts.append(f"what the draft adds is by arithmetic: {TOOL} does not count it")
    if placed.devices > 1 and placed.split != "none" and not placed.tensor_split:
        doubts.append("no `tensor_split` is declared: layers are split by the free memory of the GPUs at the estimate")
    alike = estimate(held.header, without_draft(placed)).everywhere
    more = alike.compute - held.model.everywhere.compute
    if more > _NOTED:
        doubts.append(f"{TOOL} makes room for more logits than a server does: {more >> 20} MiB of them are left out")
    return tuple(doubts)


def _failure(code: int, printed: str) -> str:
    """Return why the tool failed: the first error that it logged is the cause of the later ones."""
    if code == 124:
        return f"{TOOL} did not end within {TOOL_SECONDS} s"
    if code == 137:
        return f"{TOOL} was killed: it probably needs more RAM than is free, as it allocates recurrent state"
    lines = (match[1] for pattern in _WHY if (match := pattern.search(printed)))
    # It quotes a model's header, which may contain control characters.
    why = "".join(c for c in next(lines, "") if c.isprintable()).strip()
    return f"{TOOL} failed: {why or f'it ended with {code}'}"


def _runs(
    remote: Remote, plan: Plan, questions: list[EstimateRequest], hollow: Mapping[str, tuple[Shard, ...]]
) -> Mapping[str, ToolRun]:
    """Run the tool on the host. Raise RemoteError."""
    seconds = _BASE_SECONDS + len(questions) * TOOL_SECONDS
    given = estimate_input(plan, questions, hollow)
    return query_verb(remote, "llamaherd.engine_memory.estimate", given, ToolRuns, seconds).runs


def headers(plan: Plan, wanted: set[str]) -> tuple[dict[str, tuple[Shard, ...]], dict[str, str]]:
    """Return the shards of models, by name of model, and why the shards of other models are unavailable."""
    shards: dict[str, tuple[Shard, ...]] = {}
    failed: dict[str, str] = {}
    for model in plan.models:
        if model.name in wanted:
            try:
                shards[model.name] = _local(model.files[0].name, model.local) if model.local else _of_hub(model)
            except HubError as error:
                failed[model.name] = error.message
            except GgufError as error:
                failed[model.name] = str(error)
    return shards, failed


def _local(name: str, path: Path) -> tuple[Shard]:
    """Return the header of a file of this machine. Raises GgufError."""
    length = read_header(path).data_offset
    try:
        with path.open("rb") as stream:
            return (Shard(name, path.stat().st_size, stream.read(length)),)
    except OSError as error:
        raise GgufError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None


def _of_hub(model: ModelPlan) -> tuple[Shard, ...]:
    """Return the headers of a model's files, some MB of each. Raises HubError."""
    shards = []
    for file in model.files:
        if file.name == model.mmproj:
            continue
        url, size = f"{model.url}/{quote(file.name)}", file.size or 0
        _, header = fetch_header(url, token_for(url), size)
        shards.append(Shard(file.name, size, header))
    return tuple(shards)
