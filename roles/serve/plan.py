"""From declared instances to the servers that must run: units or Compose files, and what they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from llamaherd.backends import definition
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.layout import LIBEXEC
from llamaherd.plan import BuildPlan, ImagePlan, InstancePlan, ModelPlan, TextFile
from llamaherd.role.held import estimated
from llamaherd.role.role import Planning, PlanPart
from roles.serve.gate import plan_divergence, plan_gate
from roles.serve.groups import plan_group
from roles.serve.images import plan_image
from roles.serve.spec import projectors_of, server_spec, told_server


def plan(planning: Planning) -> PlanPart:
    """Every instance, the images of those in containers, and what units run beside a server. Raises NotLockedError."""
    rig, lock = planning.rig, planning.lock
    builds = {build.engine: build for build in planning.planned["builds"]}
    models = {model.name: model for model in planning.planned["models"]}
    headers = {
        **planning.unlocked,
        **{name: header for name in models if (header := lock.header(rig.models[name]))},
    }
    images = {
        instance.engine: plan_image(rig, build)
        for _, instance in sorted(rig.instances.items())
        if instance.backend == "compose" and (build := builds.get(instance.engine))
    }
    instances = tuple(
        plan_group(rig, server, names, builds.get(rig.instances[names[0]].engine), models, headers)
        if rig.instances[names[0]].group
        else _alone(rig, server, builds, images, models, headers)
        for server, names in sorted(rig.servers.items())
    )
    return PlanPart(
        packages=frozenset({"mmdebstrap"} if images else ()),
        files=(*_programs(instances), *(each.preset for each in instances if each.preset)),
        fields={"images": tuple(images.values()), "instances": instances},
    )


def _programs(instances: Sequence[InstancePlan]) -> Iterator[TextFile]:
    """Yield the programs that units run in addition to the server, and the program that checks a container's GPUs."""
    grouped = any(each.members for each in instances)
    on_gpus = any(each.server.cards for each in instances)
    modules = {
        "wait-healthy": "wait_programs.py",
        "started": "started_program.py",
        **({"wait-loaded": "wait_programs.py"} if grouped else {}),
        **({"gpu-gate": "gpu_programs.py", "gpu-check": "gpu_programs.py"} if on_gpus else {}),
    }
    for name, module in modules.items():
        # The text of a module that is shipped alone.
        text = (Path(__file__).parent / "onhost" / module).read_text(encoding="utf-8")
        yield TextFile(path=str(LIBEXEC / name), text=text, mode="0755")


def _alone(
    rig: Rig,
    name: str,
    builds: Mapping[str, BuildPlan],
    images: Mapping[str, ImagePlan],
    models: Mapping[str, ModelPlan],
    headers: Mapping[str, Header],
) -> InstancePlan:
    declared = rig.instances[name]
    image = images.get(declared.engine) if declared.backend == "compose" else None
    return plan_instance(rig, name, builds.get(declared.engine), image, models, headers)


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
    model = models[declared.model]
    drafting = models[declared.draft.model] if declared.draft and declared.draft.model else None
    told = told_server(rig, name, model, drafting, headers)
    server = server_spec(rig, name, told, build, image, [model, *([drafting] if drafting else [])])
    spec, file = definition(declared.backend, server)
    return InstancePlan(
        name=name,
        backend=declared.backend,
        engine=declared.engine,
        build=build.id if build else None,
        model=declared.model,
        model_folder=model.folder,
        model_path=model.path,
        context=declared.context,
        mtp=declared.draft.mtp or 0 if declared.draft else 0,
        draft_folder=drafting.folder if drafting else None,
        threads=told.threads,
        server=server,
        expect=declared.expect,
        gate=plan_gate(declared.gate),
        divergence=plan_divergence(rig, name, server, build, headers),
        drain=declared.drain,
        memory=estimated(rig, declared, headers, projectors_of(models)),
        spec=spec,
        file=file,
    )
