"""The file of a rig, written from what a look at its host told."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import yaml
from pydantic import ValidationError

from llamaherd.inventory.inheritance import DEFAULTS
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.render import render
from llamaherd.scaffold.gpus import WrittenGpu, written_gpus
from llamaherd.scaffold.look import FoundHost, LookError
from llamaherd.text.quoting import Written, yaml_value
from llamaherd.text.units import show_size

_SOLD = (1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 384, 512, 768, 1024, 1536)
"""GB of memory that machines are sold with."""

_REACHED = {
    "host": "give a name or address, such as `duo.lan`, or a `Host` of ~/.ssh/config",
    "user": "give the name of a user, such as `tom`",
    "port": "give a number from 1 to 65535; sshd's is 22",
}

_MISCOMPILES = "13.2"
"""This CUDA makes gibberish of IQ3 and IQ2 quants (ggml-org/llama.cpp#21255)."""


def rig_yaml(seen: FoundHost, name: str, connect: Connect, measured: Sequence[str] = ()) -> str:
    """A whole rig: the facts of its host, and an engine, a small model and an instance to start from.

    `measured` are lines that say what was found best on rigs like it: a comment of them, and nothing else.
    """
    gpus = written_gpus(seen)
    known = dict(zip(gpu_names(gpus), gpus, strict=True)) if all(gpu.known for gpu in gpus) else {}
    largest = max(known, key=lambda each: known[each].memory, default=None)
    return render(
        "scaffold/rig.yaml.j2",
        rig=scalar(name),
        local=connect.host == LOCAL,
        host=scalar(connect.host),
        port=connect.port,
        user=scalar(connect.user) if connect.user else None,
        seen=seen,
        os=scalar(seen.os),
        cores=seen.cores or seen.threads,
        ram=round_ram(seen.memory),
        free=show_size(seen.free) if seen.free else None,
        cards={name: (gpu, scalar(gpu.model)) for name, gpu in known.items()},
        unknown=() if known else gpus,
        cuda=cuda_for(seen, gpus),
        driver=seen.cards[0].driver if seen.cards else None,
        largest=largest,
        measured=measured,
    )


def connect_to(host: str, user: str | None, port: int | None) -> Connect:
    """How a host is reached whose name, user and port somebody has typed. Raises LookError."""
    try:
        return Connect(host=host, user=user, port=port)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # What is wrong with two of them together names the one to change.
        what = str(first["loc"][0] if first["loc"] else first["ctx"]["at"])
        value = {"host": host, "user": user, "port": port}[what]
        raise LookError(f"{value!r} cannot be the {what} of a rig", _REACHED[what]) from None


def rig_name(given: str | None, host: str) -> str:
    """What the rig shall be called: as given, or after its host, `duo` for `Duo.lan`. Raises LookError."""
    if given is None:
        short = host if re.fullmatch(r"[\d.]+", host) else host.partition(".")[0]
        name = re.sub(r"[^a-z0-9._-]+", "-", short.lower()).strip("._-")[:40]
        return name if _free(name) else "rig"
    if not _free(given):
        help_ = "names have up to 40 lower-case letters, digits, dots and dashes, and `defaults.yaml` is no rig's file"
        raise LookError(f"a rig cannot be called `{given}`", help_)
    return given


def _free(name: str) -> bool:
    return re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,39}", name) is not None and f"{name}.yaml" != DEFAULTS


def scalar(text: str) -> Written:
    """A text as YAML has it: in quotes where it would be something else without."""
    plain = re.fullmatch(r"[A-Za-z]([A-Za-z0-9 ._/-]*[A-Za-z0-9])?", text) and yaml.safe_load(text) == text
    return Written(text) if plain else yaml_value(text)


def round_ram(memory: int) -> str:
    """Memory as people write it: `64GB` for the 62.6 GiB that a kernel leaves of 64 GiB. Never more than there is."""
    gigabytes = memory / 10**9
    sold = [size for size in _SOLD if 0.9 * gigabytes <= size <= gigabytes]
    if sold:
        return f"{sold[-1]}GB"
    return f"{int(gigabytes)}GB" if gigabytes >= 1 else f"{memory // 10**6}MB"


def gpu_names(gpus: Sequence[WrittenGpu]) -> list[str]:
    """A name for each: `3090-ti` where there is one of its kind, `3090-1` and `3090-2` where there are two."""
    short = [re.sub(r"[^a-z0-9]+", "-", re.sub(r"^[RG]TX ", "", c.model).lower()).strip("-")[:36] for c in gpus]
    short = [name or "card" for name in short]
    many = Counter(short)
    given: Counter[str] = Counter()
    names = []
    for each in short:
        given[each] += 1
        names.append(f"{each}-{given[each]}" if many[each] > 1 else each)
    return names


def cuda_for(seen: FoundHost, gpus: Sequence[WrittenGpu]) -> str:
    """The newest toolkit there that does for its driver and all of its GPUs, or which one to install.

    Bounds: CUDA 13 needs driver 580 and GPUs from 75 on; 12.8 is the first for 100 and later, 11.8 for 89 and 90
    (NVIDIA's compatibility guide; `nvcc --list-gpu-code` of each).
    """
    architectures = [gpu.sm for gpu in gpus if gpu.sm] or [86]
    branch = re.match(r"\d+", seen.cards[0].driver) if seen.cards else None
    least = (12, 8) if max(architectures) >= 100 else (11, 8)
    modern = min(architectures) >= 75 and (branch is None or int(branch[0]) >= 580)
    there = [
        version
        for version in seen.cuda
        if re.fullmatch(r"\d+\.\d+", version)
        and version != _MISCOMPILES
        and _pair(version) >= least
        and (modern or _pair(version) < (13, 0))
    ]
    return max(there, key=_pair) if there else ("13.0" if modern else "12.9")


def _pair(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
