"""Engines: a build that is finished is never made again, and one that is not is never taken for finished."""

from __future__ import annotations

from llamaherd.converge.steps import RunScript, SendFile
from llamaherd.host.state import HostState
from llamaherd.layout import BUILD_PATH, BUILD_USER, CACHE, SET_ASIDE
from llamaherd.plan import BuildPlan, ImagePlan
from llamaherd.text.quoting import base64_lines
from llamaherd.text.render import render


def build_steps(build: BuildPlan, seen: HostState) -> list[SendFile | RunScript]:
    """Send the source, if it is here; build, or join a build that runs, or let in one that has ended."""
    state = seen.builds.get(build.id)
    if state == "done":
        return []
    if state == "intact":
        return [RunScript(render("steps/vouch.sh.j2", b=build, aside=SET_ASIDE))]
    steps: list[SendFile | RunScript] = []
    archive, sha256 = build.source.local_archive, build.source.sha256
    if state in (None, "damaged") and archive and sha256 and sha256 not in seen.sources:
        admit = RunScript(render("steps/admit-source.sh.j2", sha256=sha256, user=BUILD_USER))
        steps += [SendFile(archive, sha256, (CACHE / "sources" / sha256,)), admit]
    script = render("steps/build.sh.j2", b=build, user=BUILD_USER, script=base64_lines(build.script), path=BUILD_PATH)
    return [*steps, RunScript(script, f"building {build.id}")]


def image_steps(image: ImagePlan, seen: HostState) -> list[RunScript]:
    """Make the image of a build."""
    if image.tag in seen.images:
        return []
    script = render("steps/image.sh.j2", i=image, dockerfile=base64_lines(image.dockerfile))
    return [RunScript(script, f"making image {image.tag}")]
