"""Repositories of apt besides the distribution's: a key is let in by its fingerprint, before its source is named."""

from __future__ import annotations

from llamaherd.converge.steps import RunScript, differs, put_files
from llamaherd.host.state import HostState
from llamaherd.plan import RepositoryPlan
from llamaherd.text.render import render


def repository_steps(repository: RepositoryPlan, seen: HostState) -> list[RunScript]:
    """Make a repository known to apt, unless somebody has done so already: two files for one address are an error."""
    if repository.name in seen.repositories:
        return []
    if repository.keyring in seen.files and not differs(repository.sources, seen):
        return []
    script = render("steps/repository.sh.j2", r=repository, put=put_files([repository.sources]))
    return [RunScript(script, f"making {repository.url} known to apt")]
