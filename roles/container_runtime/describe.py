"""Docker's lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.plan import Estimate, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """What containers need, and what gives them GPUs."""
    if (runtime := plan.runtime) is None:
        return []
    docker, compose = (".".join(map(str, version)) for version in (runtime.docker, runtime.compose))
    packages = " ".join(runtime.packages)
    lines = [f"  docker     {docker} or newer with Compose {compose} or newer, or else {packages}"]
    if runtime.toolkit is None:
        return lines
    version = f" {runtime.toolkit.version}" if runtime.toolkit.version else ", the newest and then kept"
    return [*lines, f"             GPUs by NVIDIA's container toolkit{version}"]
