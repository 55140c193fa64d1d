"""WSL's lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.plan import Estimate, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """What WSL is to be told, and what is left for Windows' administrator to run."""
    wsl = plan.wsl
    if wsl is None:
        return []
    settings = [f"{section}.{key}={value}" for section, keys in wsl.settings.items() for key, value in keys.items()]
    return [
        f"  .wslconfig {' '.join(settings) or 'as it is'}",
        f"             in {wsl.profile or 'the folder of the Windows user who started WSL'}",
        *(f"             to be run in Windows: {script.path}" for script in wsl.scripts),
    ]
