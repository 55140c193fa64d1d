"""Every script that is compared, by the name of its golden file."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.host.program import Program, bootstrap
from llamaherd.host.protocol import probe_script
from llamaherd.pipeline.inspection import install_script
from llamaherd.role.role import Role
from llamaherd.text.quoting import Written, sh
from tests.render.plans import (
    CPU,
)
from tests.render.scripts_beside import BESIDE
from tests.support.ours import inspect_scripts
from tests.support.rigs import ROOT

RECEIVER = (ROOT / "llamaherd" / "onhost" / "bootstrap.py").read_text(encoding="utf-8")
"""A program has tests of its own."""
OWN = Role("motd", "", inspect=lambda _: 'say motd "$(systemctl is-active motd.service)"')
SCRIPTS: dict[str, Callable[[], str]] = {
    "inspect_own_role": lambda: inspect_scripts(CPU, [OWN])["motd"],
    "verify_own": lambda: probe_script("host/verify.sh.j2", parts=[Written("section motd ''\ncat /etc/motd | lines")]),
    "install_python": install_script,
    "host_program": lambda: bootstrap(Program("0123456789abcdef", {}), keep=True).replace(sh(RECEIVER), "RECEIVER"),
    **BESIDE,
}
"""A golden file refers to texts that stand before its own, so a variant stands after the plain case."""
