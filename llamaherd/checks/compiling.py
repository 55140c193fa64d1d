"""What a CUDA toolkit compiles with and makes: the host's compiler and C library, and kernels that work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from llamaherd.checks.building import served_by_builds
from llamaherd.checks.context import RigContext
from llamaherd.checks.declared_toolkit import Toolkit, declared_toolkit
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.schema import Engine, Model
from llamaherd.reference import toolchains
from llamaherd.reference.toolchains import dotted


def compiling(subject: RigContext) -> Iterator[Finding]:
    """A toolkit that does not do for the models, or for the host's compiler and C library."""
    if kit := declared_toolkit(subject):
        for find in (_miscompiled, _other_c_library, _older_gcc):
            yield from find(kit)


MISCOMPILED = Rule(
    "LH042",
    "The CUDA toolkit miscompiles the kernels of IQ quants.",
    why="""
    CUDA 13.2 does: models answer gibberish. 13.1 and 13.3 are fine
    ([#21255](https://github.com/ggml-org/llama.cpp/issues/21255)). It is an error for a model with such tensors,
    as its lock or its name tells. Otherwise it is a warning: quants of other names often hold some.
    """,
    example="""
    gpus:
      cuda: "13.2"
    models:
      35b: {quant: UD-IQ3_XXS}
    """,
    way_out="""
    write another toolkit. To keep 13.2, write `options: {CMAKE_CUDA_FLAGS: "-Xcicc -O1"}` for the engine, as the
    reports recommend.
    """,
    sometimes=("warning",),
)


def _miscompiled(kit: Toolkit) -> Iterator[Finding]:
    if kit.declared not in toolchains.MISCOMPILING or all(map(_optimises_less, kit.engines.values())):
        return
    message = f"CUDA {kit.written} miscompiles the kernels of IQ quants"
    rig = kit.subject.rig
    for name in sorted({instance.model for instance in served_by_builds(rig).values()}):
        model = rig.models.get(name)
        if (model and _names_iq(model)) or _holds_iq(kit.subject, name):
            yield MISCOMPILED.at(kit.place, f"{message}: `{name}` would answer gibberish", kit.way_out)
            return
    message = f"{message}, which models of other quants hold tensors of as well"
    yield MISCOMPILED.at(kit.place, message, kit.way_out, "warning")


def _optimises_less(engine: Engine) -> bool:
    """The way around the miscompilation that its reports name."""
    return "-Xcicc -O1" in str(engine.options.get("CMAKE_CUDA_FLAGS", ""))


def _names_iq(model: Model) -> bool:
    """Whether a model is called by an IQ quant, as in `UD-IQ3_XXS` and `*IQ2_M*.gguf`."""
    names = (model.quant or "", model.files, model.file.name if model.file else "")
    return any(re.search(r"(?<![a-z0-9])iq\d", name, re.IGNORECASE) for name in names)


def _holds_iq(subject: RigContext, name: str) -> bool:
    header = subject.headers.get(name)
    return header is not None and any(group.type.startswith("IQ") for group in header.tensors)


OTHER_C_LIBRARY = Rule(
    "LH069",
    "The CUDA toolkit does not compile with the host's C library.",
    why="""
    glibc 2.41 came to declare `cospi` and its like, and glibc 2.42 `rsqrt`. The headers of older toolkits declare
    them otherwise, and nvcc stops at the first file: `exception specification is incompatible with that of
    previous function "cospi"`. No older g++ helps, since it reads the same C library.
    """,
    example="""
    host: {os: debian-13}
    gpus: {cuda: "12.8"}
    """,
    after="""
    | toolkit | glibc up to | so not on |
    | --- | --- | --- |
    | before 13.0 | 2.40 | Debian 13, Ubuntu 26.04 |
    | 13.0 and 13.1 | 2.41 | Ubuntu 26.04 |
    """,
    way_out="""
    write a newer toolkit, as the help line says. A GPU that CUDA 13 no longer compiles for needs an older system,
    or an image. If you have mended a toolkit's headers, name its nvcc by `options: {CMAKE_CUDA_COMPILER: …}`:
    nothing of this is then checked.
    """,
)


def _other_c_library(kit: Toolkit) -> Iterator[Finding]:
    newest = toolchains.newest_glibc(kit.declared)
    if newest and kit.glibc > newest:
        library = f"the C library of {kit.system}, glibc {dotted(kit.glibc)}"
        limit = f"the newest that it does with is {dotted(newest)}"
        message = f"CUDA {kit.written} does not compile with {library}: {limit}"
        yield OTHER_C_LIBRARY.at(kit.place, message, kit.way_out)


GCC_TOO_NEW = Rule(
    "LH043",
    "The host's compiler is too new for the CUDA toolkit, and an older one is installed beside it.",
    why="""
    nvcc refuses a gcc that is newer than those it was made for. `host.os` decides which gcc a host has. NVIDIA's
    own repositories hardly have such toolkits: this is for a mirror.
    """,
    example="""
    host: {os: debian-12}
    gpus:
      cuda: "11.8"
      repository: {url: "https://mirror.lan/cuda", key: key.asc, fingerprint: ABABABABABABABABABABABABABABABABABABABAB}
    """,
    after="""
    `herd up` installs the newest `g++-N` of the distribution that the toolkit takes, and builds get
    `CMAKE_CUDA_HOST_COMPILER: /usr/bin/g++-N`. The rest is compiled with the distribution's own g++.
    """,
    way_out="""
    none is needed. To name another compiler, write `options: {CMAKE_CUDA_HOST_COMPILER: …}`. A newer toolkit
    needs none.
    """,
    severity="note",
)


def _older_gcc(kit: Toolkit) -> Iterator[Finding]:
    beside = toolchains.beside_gcc(kit.system, kit.declared)
    if beside and _with_the_hosts_gcc(kit.engines) and not any(True for _ in _other_c_library(kit)):
        newest, own = toolchains.NEWEST_GCC[kit.declared], toolchains.DISTRIBUTION_GCC[kit.system]
        message = f"CUDA {kit.written} takes gcc up to {newest}, and {kit.system} compiles with gcc {own}"
        help_ = f"g++-{beside} is installed beside it, and compiles the host's part of CUDA code"
        yield GCC_TOO_NEW.at(kit.place, message, help_)


def _with_the_hosts_gcc(engines: Mapping[str, Engine]) -> bool:
    def own(engine: Engine) -> bool:
        flags = str(engine.options.get("CMAKE_CUDA_FLAGS", ""))
        return "CMAKE_CUDA_HOST_COMPILER" in engine.options or "-allow-unsupported-compiler" in flags

    return not all(own(engine) for engine in engines.values())
