"""From one declared instance to the server that must run: its arguments, its unit or Compose file, its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llamaherd.devices import cdi_devices, device_ids, on_one_card, places, visible_devices
from llamaherd.engines import DIALECTS, Server, flags_of, listens_on, on_host_network
from llamaherd.fleet import Engine, Instance, Rig
from llamaherd.gguf.header import Header
from llamaherd.layout import KEYS, PROJECTS, UNITS, container_user, unit_user
from llamaherd.memory.estimate import estimate
from llamaherd.memory.growth import growth
from llamaherd.memory.overhead import in_ram, mapped_between
from llamaherd.memory.placement import Placement
from llamaherd.memory.use import Memory, Use
from llamaherd.pinned import NotLockedError
from llamaherd.planned import (
    RAM,
    BuildPlan,
    Estimate,
    Grows,
    Holds,
    ImagePlan,
    InstancePlan,
    ModelPlan,
    TextFile,
    digest,
)
from llamaherd.quoting import url_host
from llamaherd.render import render
from llamaherd.sidecars import beside, drafting_header, together
from llamaherd.sizing import capacity, cuda_bytes, experts_on_cpu, placement
from llamaherd.threads import shared_threads

GATE_SECONDS = 120
"""How long a unit waits for its cards, if its model has twice that to load: each command of a unit's start may take
TimeoutStartSec=."""

_STOP_SECONDS = 1
"""How long a server may take to end. An idle one takes less. One that streams may hang for ever: the handler of the
signal takes locks that the thread which it interrupted holds (tools/server/server.cpp of b11434, signal_handler)."""
_STOP_SECONDS_VLLM = 10
"""It ends its workers one by one."""

_MAX_FILES = 16384
"""No more than a host in a container may give away, where Docker fails instead of taking less (here: 20,000)."""
_MAX_TASKS = 4096
"""llama-server has up to 1,024 threads for connections besides those that compute (server-http.cpp, ThreadPool)."""


def plan_instance(
    rig: Rig,
    name: str,
    build: BuildPlan | None,
    image: ImagePlan | None,
    models: Mapping[str, ModelPlan],
    headers: Mapping[str, Header],
) -> InstancePlan:
    """One server as it must run. Headers, by name of model, tell its memory, and where its experts are.

    Raises NotLockedError.
    """
    declared = rig.instances[name]
    engine = rig.engines[declared.engine]
    model = models[declared.model]
    drafting = models[declared.draft.model] if declared.draft and declared.draft.model else None
    server = _server(rig, name, model, drafting, headers)
    arguments = DIALECTS[engine.kind].arguments(server)
    program = _program(build, image)
    service = f"llama-{name}"
    compose = declared.backend == "compose"
    user = container_user(name) if compose else unit_user(name)
    load_timeout = declared.load_timeout or _load_timeout(model, *([drafting] if drafting else []))
    cards = places(rig, declared)
    folders = tuple(dict.fromkeys(each.folder for each in (model, drafting) if each))
    context: dict[str, Any] = {
        "name": name,
        "service": service,
        "user": user,
        "engine": declared.engine,
        "kind": engine.kind,
        "model": declared.model,
        "model_folders": folders,
        "inputs": (str(KEYS / name) if declared.api_key else "-", *folders),
        "image": image.tag if image else engine.image,
        "program": program,
        "arguments": arguments,
        "environment": {**_told(engine, declared), **environment(rig, declared, build)},
        "devices": cdi_devices(rig, declared),
        "on_gpu": bool(declared.on),
        "wsl": rig.host.wsl is not None,
        "cards": tuple(card.at for card in cards),
        "one_card": on_one_card(declared),
        "gate_seconds": min(GATE_SECONDS, load_timeout // 2),
        "cpus": declared.cpus,
        "mlock": declared.mlock,
        "listen": declared.listen,
        "health": f"http://{_reachable(declared.listen)}:{declared.port}/health",
        "loopback": declared.loopback,
        "host_network": on_host_network(engine, declared),
        "stop_seconds": _STOP_SECONDS_VLLM if engine.kind == "vllm" else _STOP_SECONDS,
        "max_files": _MAX_FILES,
        "max_tasks": _MAX_TASKS,
        "port": declared.port,
        "api_key": declared.api_key is not None,
        "load_timeout": load_timeout,
        "spec": "",
    }
    # The spec is the hash of the whole text that has no spec in it yet: nothing that matters can be left out.
    spec = digest(_serving_text(rig, declared, context))
    return InstancePlan(
        name=name,
        service=service,
        user=user,
        backend=declared.backend,
        engine=declared.engine,
        engine_kind=engine.kind,
        build=build.id if build else None,
        image=context["image"] if compose else None,
        model=declared.model,
        model_folder=model.folder,
        model_path=model.path,
        context=declared.context,
        mtp=declared.draft.mtp or 0 if declared.draft else 0,
        draft_folder=drafting.folder if drafting else None,
        threads=server.threads,
        listen=declared.listen,
        port=declared.port,
        health=context["health"],
        api_key=declared.api_key,
        load_timeout=load_timeout,
        program=program,
        arguments=arguments,
        environment=context["environment"],
        cards=cards,
        one_card=bool(cards) and on_one_card(declared),
        expect=declared.expect,
        memory=estimated(rig, declared, headers, _projectors(models)),
        spec=spec,
        file=TextFile(
            path=str(PROJECTS / name / "compose.yaml" if compose else UNITS / f"{service}.service"),
            text=_serving_text(rig, declared, context | {"spec": spec}),
        ),
    )


def _projectors(models: Mapping[str, ModelPlan]) -> dict[str, int]:
    """Bytes of vision projectors by name of model."""
    return {name: file.size or 0 for name, model in models.items() for file in model.files if file.name == model.mmproj}


def _server(rig: Rig, name: str, model: ModelPlan, drafting: ModelPlan | None, headers: Mapping[str, Header]) -> Server:
    declared = rig.instances[name]
    header = headers.get(declared.model)
    engine = rig.engines[declared.engine]
    if header is None and declared.moves_experts:
        raise NotLockedError(f"the header of model `{declared.model}`, which tells the experts of `{name}`,")
    moved = experts_on_cpu(declared, header) if header else None
    return Server(
        declared=declared,
        model_path=model.path,
        threads=shared_threads(rig, headers)[name],
        listen=listens_on(engine, declared),
        overrides=(f"{moved}=CPU",) if moved else (),
        api_key_file=str(KEYS / name) if declared.api_key else None,
        flags=flags_of(engine),
        draft_path=drafting.path if drafting else None,
        mmproj_path=model.mmproj_path,
    )


def estimated(
    rig: Rig, declared: Instance, headers: Mapping[str, Header], projectors: Mapping[str, int]
) -> Estimate | None:
    """What the instance takes by arithmetic; None where a card's memory is not known, or the model's shape."""
    header = headers.get(declared.model)
    known = [card for card in declared.on if capacity(rig, card) is not None]
    if header is None or rig.engines[declared.engine].kind == "vllm" or len(known) < len(declared.on):
        return None
    try:
        placed = placement(rig, declared, header)
        memory = together(estimate(header, placed), beside(declared, placed, headers, projectors))
    except ValueError:
        return None
    more = growth(header, placed, drafting_header(declared, headers))
    return Estimate(
        source="arithmetic",
        holds=held(rig, declared, header, placed, memory),
        doubts=memory.doubts,
        grows=Grows(prompts=more.prompts, checkpoints=more.checkpoints),
    )


def held(rig: Rig, declared: Instance, header: Header, placed: Placement, memory: Memory) -> tuple[Holds, ...]:
    """What each of an instance's cards and the RAM hold, CUDA's own part included."""
    sizes = [capacity(rig, card) or 0 for card in declared.on]
    rooms = [*zip(declared.on, sizes, memory.devices, strict=True), (RAM, rig.host.ram, memory.host)]
    own = in_ram(header, placed) + mapped_between(header, placed)
    cuda = (*cuda_bytes(rig, declared, header, placed), own)
    return tuple(holds(*each, taken) for each, taken in zip(rooms, cuda, strict=True))


def holds(where: str, size: int, use: Use, cuda: int) -> Holds:
    """What one card, or the RAM, holds, with all that the draft adds in one figure."""
    return Holds(
        where=where,
        size=size,
        weights=use.weights,
        kv=use.kv,
        state=use.state,
        compute=use.compute,
        draft=use.draft.total,
        cuda=cuda,
    )


def _program(build: BuildPlan | None, image: ImagePlan | None) -> str | None:
    """None for an image that is pulled: it starts by itself."""
    if image:
        return "/usr/local/bin/llama-server"
    return f"{build.folder}/bin/llama-server" if build else None


def _reachable(listen: str) -> str:
    """Where a server that listens there is asked from its own host, as URLs have it."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)
    return url_host(address)


def _serving_text(rig: Rig, declared: Instance, context: Mapping[str, Any]) -> str:
    if declared.backend == "compose":
        return render("compose.yaml.j2", rig=rig.rig, i=context)
    return render("llama-server.service.j2", rig=rig.rig, i=context)


def environment(rig: Rig, declared: Instance, build: BuildPlan | None) -> dict[str, str]:
    """Cards by name and order; none for a server on the CPU whose engine could use one."""
    assigned: dict[str, str] = {}
    if declared.on:
        assigned["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        ids = device_ids(rig, declared)
        if ids:
            assigned["CUDA_VISIBLE_DEVICES"] = visible_devices(ids, given=_given(rig, declared))
        if rig.host.wsl:
            assigned["LD_LIBRARY_PATH"] = "/usr/lib/wsl/lib"
    elif build and build.cuda:
        assigned["CUDA_VISIBLE_DEVICES"] = ""
    if rig.engines[declared.engine].kind == "vllm":
        assigned["HOME"] = "/tmp"  # where it may write what it compiles
    return assigned | declared.environment


def _told(engine: Engine, declared: Instance) -> dict[str, str]:
    """What servers are told by variables, as versions that do not know it would refuse a flag, and read no variable.

    Which web pages a browser lets read what a server without a key answers: those of the browser's own host (b10108).
    How many connections ik_llama.cpp serves at once, each by a thread: two more than slots, or all processors but one
    (examples/server/server.cpp:2106 of 67268c8fd), so that as many that say nothing would shut it. There, a variable
    counts more than an argument.
    """
    if engine.kind == "ik_llama.cpp":
        return {} if "--threads-http" in declared.extra_args else {"LLAMA_ARG_THREADS_HTTP": "1024"}
    return {"LLAMA_ARG_CORS_ORIGINS": "localhost"} if engine.kind == "llama.cpp" and not declared.api_key else {}


def _given(rig: Rig, declared: Instance) -> bool:
    """Whether it is given its own cards and no others: a container is, but under WSL."""
    return declared.backend == "compose" and rig.host.wsl is None


def _load_timeout(*models: ModelPlan) -> int:
    """Seconds for a cold load: a minute, and the models at 100 MB/s, which a hard disk manages.

    How large a file of the controller is, the plan does not know: it is taken for one of 24 GB.
    """
    files = [file for model in models for file in model.files]
    return 60 + sum(24 * 10**9 if file.size is None else file.size for file in files) // 100_000_000
