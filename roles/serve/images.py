"""Images of engines that were built on the host, for instances in containers."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.plan import BuildPlan, ImagePlan, digest
from llamaherd.reference.distributions import IMAGE_PACKAGES
from llamaherd.resources import DOCKERFILE
from llamaherd.role.changes import Change, RunVerb
from roles.serve.onhost.model import ImageInput


def plan_image(rig: Rig, build: BuildPlan) -> ImagePlan:
    """The image of a build. `busybox` asks for health inside; the rest is what the server is linked against."""
    packages = (
        "base-files",
        "busybox",
        "ca-certificates",
        "libgomp1",
        "libstdc++6",
        *IMAGE_PACKAGES[rig.host.os],
    )
    dockerfile = DOCKERFILE.read_text(encoding="utf-8")
    base = f"llamaherd/base:{rig.host.os}-{digest(packages)}"
    return ImagePlan(
        tag=f"llamaherd/engine:{build.id}-{digest(base, dockerfile)[:6]}",
        build=build.id,
        base=base,
        base_packages=packages,
        dockerfile=dockerfile,
    )


def image_changes(image: ImagePlan, state: HostState) -> list[Change]:
    """Make the image of a build."""
    if image.tag in state.images:
        return []
    given = ImageInput(image.tag, image.base, image.base_packages, image.build, image.dockerfile, image.record)
    how = RunVerb("serve.image.make", given, f"making image {image.tag}")
    return [Change("create", "image", image.tag, ("it is not there, or was made as another",), how)]
