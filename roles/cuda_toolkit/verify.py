"""Whether the CUDA toolkit works: nvcc and the host's compiler read a file together. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.onhost.verification import Probe
from llamaherd.plan import Plan
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified

PREPROCESSED = "__CUDACC_VER_MAJOR__.__CUDACC_VER_MINOR__"
"""What nvcc has a compiler read: its own version comes out, unless it does not take that compiler."""


# $1 is the program that it reads, and then come nvcc and its arguments.
_PREPROCESS = """\
probe=$(mktemp -d) && printf '%s\\n' "$1" >"$probe/probe.cu" && shift && "$@" -E "$probe/probe.cu" 2>&1
rm -rf "$probe"
"""


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield the probe of nvcc with the host's compiler."""
    if plan.toolkit:
        compiler = ("-ccbin", plan.toolkit.compiler) if plan.toolkit.compiler else ()
        nvcc = (plan.toolkit.nvcc, *compiler)
        yield Probe("nvcc", "", ("sh", "-c", _PREPROCESS, "sh", PREPROCESSED, *nvcc), seconds=60)


def judge(judging: Judging) -> Verified:
    """The toolkit."""
    toolkit = judging.plan.toolkit
    return Verified(checks=(_toolkit(toolkit.version, judging.answers.get(("nvcc", ""), "")),) if toolkit else ())


def _toolkit(version: str, said: str) -> Check:
    last = said.strip().splitlines()[-1:] or ["it does not run"]
    found = re.sub(r"\s", "", last[0])
    if found == version:
        return Check("CUDA", True, f"nvcc {version} takes the host's compiler")
    if re.fullmatch(r"\d+\.\d+", found):
        return Check("CUDA", False, f"nvcc is {found}, declared is {version}")
    wrong = next((line.strip() for line in said.splitlines() if "error" in line), last[0].strip())
    return Check("CUDA", False, f"nvcc {version} and the host's compiler do not go together: {wrong[:200]}")
