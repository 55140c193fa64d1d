"""Whether the CUDA toolkit works: nvcc and the host's compiler read a file together. Pure."""

from __future__ import annotations

import re

from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified

PREPROCESSED = "__CUDACC_VER_MAJOR__.__CUDACC_VER_MINOR__"
"""What nvcc has a compiler read: its own version comes out, unless it does not take that compiler."""


def question(plan: Plan) -> str:
    """Ask nvcc."""
    return render("cuda_toolkit/verify.sh.j2", plan=plan, preprocessed=PREPROCESSED) if plan.toolkit else ""


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
