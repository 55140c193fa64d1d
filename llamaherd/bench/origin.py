"""Where a measurement of a declared instance comes from: its plan, and what its host and its server tell. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.bench.asking.server_facts import ServerFacts
from llamaherd.bench.job import Job
from llamaherd.bench.meter.look import Look
from llamaherd.bench.meter.readings import Readings
from llamaherd.bench.meter.use import Use
from llamaherd.bench.results.provenance import Around, Engine, Gpu, Host, ModelFile, Provenance, Server
from llamaherd.plan import InstancePlan, ModelPlan, Plan


def provenance(
    job: Job,
    readings: Readings,
    look: Look,
    uuids: Sequence[str],
    facts: ServerFacts,
) -> Provenance:
    """All that is known before the first request."""
    plan, instance = job.plan, job.instance
    spec = instance.server
    drivers = [readings.facts[uuid].driver for uuid in uuids if uuid in readings.facts]
    return Provenance(
        host=_host(readings, look),
        gpus=tuple(_gpu(readings, look, uuid) for uuid in uuids),
        driver=next(iter(drivers), None),
        engine=_engine(plan, instance, facts),
        model=instance.model,
        files=tuple(_files(plan, instance)),
        server=Server(
            spec=instance.spec,
            arguments=spec.arguments,
            environment=dict(spec.environment),
            user=spec.user,
            context=facts.context,
            slots=facts.slots,
            group=job.group.name if job.group else None,
        ),
        around=_around(job, look, uuids),
    )


def with_links(found: Provenance, used: Use, uuids: Sequence[str]) -> Provenance:
    """The same with the links of GPUs as they were under load: idle ones fall back to the first generation."""
    by_uuid = {gpu.uuid: gpu for gpu in used.gpus}
    gpus = tuple(
        gpu.model_copy(update={"pcie_generation": each.generation, "pcie_lanes": each.lanes})
        if (each := by_uuid.get(uuid))
        else gpu
        for gpu, uuid in zip(found.gpus, uuids, strict=True)
    )
    return found.model_copy(update={"gpus": gpus})


def _host(readings: Readings, look: Look) -> Host:
    hello = readings.hello
    assert hello
    told = hello.host
    return Host(
        name=told.name or None,
        os=told.os or None,
        kernel=told.kernel or None,
        libc=told.libc or None,
        cpu=told.cpu or None,
        microcode=told.microcode or None,
        threads=told.threads,
        smt=told.smt,
        governor=told.governor or None,
        ram_bytes=told.ram_bytes,
        swapped_bytes=look.swapped_bytes or None,
    )


def _gpu(readings: Readings, look: Look, uuid: str) -> Gpu:
    facts, sample = readings.facts.get(uuid), look.gpus.get(uuid)
    if facts is None:
        return Gpu(name="unknown", uuid=uuid)
    return Gpu(
        name=facts.name,
        uuid=uuid,
        address=facts.address,
        memory_bytes=facts.memory_bytes,
        vbios=facts.vbios,
        power_limit_watts=sample.limit or None if sample else None,
        power_default_watts=facts.power_default_watts or None,
        most_sm_mhz=facts.most_sm_mhz,
        most_memory_mhz=facts.most_memory_mhz,
        ecc=facts.ecc,
        idle_celsius=sample.celsius if sample else None,
    )


def _engine(plan: Plan, instance: InstancePlan, facts: ServerFacts) -> Engine:
    build = next((each for each in plan.builds if each.id == instance.build), None)
    if build is None:
        return Engine(kind=instance.engine, version=facts.build, image=instance.server.image)
    source = build.source
    return Engine(
        kind=build.kind,
        version=facts.build,
        commit=source.commit or source.sha256,
        build=build.id,
        options=tuple(f"{name}={value}" for name, value in sorted(build.options.items())),
        cuda=build.cuda,
        image=instance.server.image,
    )


def _files(plan: Plan, instance: InstancePlan) -> Iterator[ModelFile]:
    """Those of its model, and of the one that drafts for it."""
    for model in plan.models:
        if model.folder == instance.model_folder:
            yield from _of_model(model, draft=False)
        elif model.folder == instance.draft_folder:
            yield from _of_model(model, draft=True)


def _of_model(model: ModelPlan, *, draft: bool) -> Iterator[ModelFile]:
    for file in model.files:
        yield ModelFile(
            part="draft" if draft else "projector" if file.name == model.mmproj else "weights",
            name=file.name,
            repo=model.repo,
            revision=model.revision,
            sha256=file.sha256 or None,
            size=file.size,
        )


def _around(job: Job, look: Look, uuids: Sequence[str]) -> Around:
    apps = [app for app in look.apps or () if app.uuid in uuids and app.pid not in look.ours]
    names = [app.name or f"process {app.pid}" for app in apps] + [str(other) for other in look.others]
    # The others of its group have no model loaded meanwhile.
    server = job.group or job.instance
    others = tuple(each.name for each in job.plan.instances if each.name != server.name)
    return Around(instances=others, processes=tuple(dict.fromkeys(names)), load=look.load)
