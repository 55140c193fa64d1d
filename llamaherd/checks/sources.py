"""Sources of engines and models: versions, images and files that do not exist, and builds that leave something out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.diagnostics.spelling import nearest_name
from llamaherd.engines import TRAITS, is_on, reads_gguf, served_whole
from llamaherd.inventory.exact_edits import value_edit
from llamaherd.inventory.schema import Card, Engine, Model, Rig
from llamaherd.inventory.schema.software import UPSTREAM
from llamaherd.inventory.suggestions import is_same_value, quant_of_bits
from llamaherd.reference.releases import is_published_tag, same_tag
from llamaherd.reference.toolchains import BLACKWELL
from llamaherd.text.quoting import yaml_value

NOT_THERE = frozenset(
    ("latest", "newest", "stable", "release", "nightly", "trunk", "default", "head", "main", "master")
)
"""Names of the newest version in other projects, and in some of these repositories."""


NO_REF = Rule(
    "LH275",
    "The engine's repository has no version of this name.",
    why="""
    `latest` and `stable` are names of images. ik_llama.cpp has a branch `main`, and llama.cpp's is called
    `master`.
    """,
    example="""
    engines:
      main: {kind: llama.cpp, ref: latest}
    """,
    fix="""
    write a tag such as `b11434`. Or write the branch of the help line: `herd lock` resolves it once and writes it
    down.
    """,
)


def check_refs(subject: RigContext) -> Iterator[Finding]:
    """Report refs that only other repositories have."""
    for name, engine in subject.rig.engines.items():
        source, branch = engine.source, TRAITS[engine.kind].branch
        if branch is None or source is None or source.ref is None or source.git != UPSTREAM[engine.kind]:
            continue
        ref, number = source.ref, re.fullmatch(r"[vVB]-?([0-9]{4,6})", source.ref)
        bare = re.sub(r"^(refs/(tags|heads)|origin|tags|heads)/|[./]+$", "", ref)
        key, where = engine.version_key[-1], ("engines", name, *engine.version_key)
        if engine.release and ref.lower() in {*NOT_THERE, branch}:
            help_ = "write the tag of a release, such as `release: b11434`; `herd outdated` shows newer ones"
        elif ref.lower() in NOT_THERE and ref != branch:
            help_ = f"did you mean `ref: {branch}`, the newest at the time of `herd lock`?"
        elif number and TRAITS[engine.kind].numbers_builds:
            help_ = f"did you mean `{key}: b{number[1]}`?"
        elif bare and bare != ref:
            help_ = f"did you mean `{key}: {bare}`?"
        elif re.fullmatch(r"(?!b[0-9]+$)(?=.*[0-9])[0-9a-f]{7,39}", ref):
            help_ = "for a commit, give all 40 digits of it: `git rev-parse` shows them"
        else:
            continue
        message = f"{engine.kind} has no {'release' if engine.release else 'tag and no branch'} `{ref}`"
        yield NO_REF.at(subject.document.value(where), message, help_)


LLAMA_CPP = "ghcr.io/ggml-org/llama.cpp"
IK_LLAMA_CPP = "ghcr.io/ikawrakow/ik-llama-cpp"

MOVED = {"ghcr.io/ggerganov/llama.cpp": LLAMA_CPP}
"""Former names of images, and their current names."""

ENGINE_OF_IMAGE = {image: kind for kind, traits in TRAITS.items() for image in traits.images}
"""The engine whose flags the server of an official image takes."""

# Names of one build in a tag: `b11434`, `4000`, `v0.11.0`, a commit. Such a tag always means the same image.
_VERSION = re.compile(r"(?:^|[-_.])(?:b?\d{3,}|v?\d+\.\d+|[0-9a-f]{7,40}\b)")


@dataclass(frozen=True)
class Image:
    """The image of an engine."""

    rig: Rig
    name: str
    """The name of the engine."""
    engine: Engine
    repository: str
    tag: str | None
    place: Place


def check_images(subject: RigContext) -> Iterator[Finding]:
    """Report problems of the images that engines are run from."""
    for name, engine in subject.rig.engines.items():
        if engine.image is not None:
            place = subject.document.value(("engines", name, "image"))
            image = Image(subject.rig, name, engine, untagged(engine.image), _tag(engine.image), place)
            yield from _moved(image)
            if image.repository not in MOVED:
                yield from _moving(image)
                yield from _other_server(image)
                yield from _compiles(image)


MOVED_IMAGE = Rule(
    "LH071",
    "An image has moved.",
    why="llama.cpp's images are under `ghcr.io/ggml-org`. The old name gets no new ones.",
    example="""
    engines:
      pulled: {kind: llama.cpp, image: "ghcr.io/ggerganov/llama.cpp:full-cuda"}
    instances:
      pulled: {engine: pulled, model: small, context: 8192, threads: 2, port: 8003, backend: compose}
    """,
    fix="write the name of the help line.",
)


def _moved(image: Image) -> Iterator[Finding]:
    if now := MOVED.get(image.repository):
        message = f"`{image.repository}` gets no new images: the project moved to `{now}`"
        help_ = f"write `image: {now}:{_server_tag(now, image.tag)}`, and `herd lock` finds its digest"
        yield MOVED_IMAGE.at(image.place, message, help_)


MOVING_TAG = Rule(
    "LH070",
    "An image is named by a tag that moves.",
    why="""
    `server-cuda`, `latest` and similar tags name another build from day to day. The lock stores the digest of the tag,
    so a rig stays the same until `herd lock --upgrade`. But the YAML does not show which build runs, and its flags
    cannot be checked.
    """,
    example="""
    engines:
      pulled: {kind: llama.cpp, image: "ghcr.io/ggml-org/llama.cpp:server-cuda13"}
    instances:
      pulled: {engine: pulled, model: small, context: 8192, threads: 2, port: 8003, backend: compose}
    """,
    fix="write the tag of one build, such as `server-cuda13-b11434`, or `NAME@sha256:…`.",
    severity="warning",
)


def _moving(image: Image) -> Iterator[Finding]:
    if not image.engine.digest and not _VERSION.search(image.tag or ""):
        tag = image.tag
        what = f"`{tag}` is a tag that moves" if tag else "an image without a tag is the one tagged `latest`"
        help_ = f"write `image: {image.repository}@sha256:…`, or the tag of one build, whose digest `herd lock` finds"
        yield MOVING_TAG.at(image.place, f"{what}: it names another build from day to day", help_)


OTHER_SERVER = Rule(
    "LH072",
    "An image does not contain the server of its engine.",
    why="""
    It is another engine's. Or it starts another program (`full`, `light`, `swap`). Or it computes on the CPU alone and
    the instance is on a GPU.
    """,
    example="""
    engines:
      pulled: {kind: llama.cpp, image: "ghcr.io/ggml-org/llama.cpp:light-cuda"}
    instances:
      pulled: {engine: pulled, model: small, context: 8192, threads: 2, port: 8003, backend: compose}
    """,
    fix="write the image of the help line, or the right `kind`.",
)


def _other_server(image: Image) -> Iterator[Finding]:
    if wrong := _not_its_server(image):
        yield OTHER_SERVER.at(image.place, *wrong)


def _not_its_server(image: Image) -> tuple[str, str] | None:
    """Return why an official image would not serve its instances, and the fix."""
    repository, tag, kind = image.repository, image.tag, ENGINE_OF_IMAGE.get(image.repository)
    if kind is not None and kind != image.engine.kind:
        message = f"`{repository}` is an image of {kind}, and engine `{image.name}` is of kind {image.engine.kind}"
        return message, f"write `kind: {kind}`"
    if repository not in (LLAMA_CPP, IK_LLAMA_CPP) or tag is None:
        return None
    right = _server_tag(repository, tag)
    if re.search(r"(^|-)(full|light|swap)\b", tag):
        return f"`{tag}` does not start a server by itself", f"write `image: {repository}:{right}`"
    on_gpus = any(instance.on for instance in image.rig.instances.values() if instance.engine == image.name)
    if on_gpus and re.fullmatch(r"server(-b\d+)?|cpu-server(-.+)?", tag):
        right = re.sub(r"^server", "server-cuda", tag) if repository == LLAMA_CPP else re.sub("^cpu", "cu13", tag)
        message = f"`{tag}` computes on the CPU alone, and `{image.name}` runs on a GPU"
        return message, f"write `image: {repository}:{right}`"
    return None


COMPILES_AT_START = Rule(
    "LH073",
    "An image is not built for the GPU, and compiles its kernels at first start.",
    why="""
    ik_llama.cpp's images hold code for 86 and 90. On a Blackwell GPU CUDA compiles it again, once, which takes
    minutes.
    """,
    example="""
    gpus:
      cards:
        big: {model: RTX 5090}
    engines:
      main: {kind: ik_llama.cpp, ref: null, image: "ghcr.io/ikawrakow/ik-llama-cpp:cu13-server"}
    instances:
      coder: {backend: compose}
      helper: {backend: compose}
    """,
    fix="build the engine from a `ref`, or allow for it with `load_timeout`.",
    severity="note",
)


def _compiles(image: Image) -> Iterator[Finding]:
    card = _blackwell(image.rig, image.name) if image.repository == IK_LLAMA_CPP else None
    if card and not _not_its_server(image):
        message = f"ik_llama.cpp's images are built for 86 and 90, so that `{card}` compiles them anew at first start"
        help_ = "build the engine from a `source` to have it ready, or allow for it with `load_timeout`"
        yield COMPILES_AT_START.at(image.place, message, help_)


def _blackwell(rig: Rig, engine: str) -> str | None:
    """Return the first Blackwell GPU that an instance of this engine is on."""
    cards = rig.gpus.cards if rig.gpus else {}
    used = [name for each in rig.instances.values() if each.engine == engine for name in each.on if name in cards]
    return next((name for name in used if int(cards[name].cuda_architecture.rstrip("af")) >= BLACKWELL), None)


def untagged(image: str) -> str:
    """Return an image's name without its tag and digest: `ghcr.io/ggml-org/llama.cpp`."""
    return re.sub(r":[^:/]*$", "", image.split("@", 1)[0])


def _tag(image: str) -> str | None:
    match = re.search(r":([^:/]+)$", image.split("@", 1)[0])
    return match[1] if match else None


def _server_tag(repository: str, tag: str | None) -> str:
    """Return the tag of the server image that corresponds to another one, such as `server-cuda` for `light-cuda`."""
    if repository == IK_LLAMA_CPP:
        return re.sub(r"-(full|swap)\b.*", "-server", tag or "cu13-server")
    if tag is None or not re.match(r"(full|light|server)\b", tag):
        return "server-cuda"
    return re.sub(r"^(full|light)\b", "server", tag)


_PLAIN = """
F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K MXFP4 MXFP4_MOE TQ1_0 TQ2_0
Q2_K_S Q2_K_L Q3_K_S Q3_K_M Q3_K_L Q3_K_XL Q4_K_S Q4_K_M Q4_K_L Q5_K_S Q5_K_M Q5_K_L Q6_K_L
IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ3_XXS IQ3_XS IQ3_S IQ3_M IQ4_XS IQ4_NL
IQ2_K IQ3_K IQ4_K IQ5_K IQ6_K IQ2_KS IQ3_KS IQ4_KS IQ5_KS IQ4_KSS IQ1_KT IQ2_KT IQ3_KT IQ4_KT IQ2_KL
"""
"""The names of mixes: llama.cpp's (b11434, tools/quantize/quantize.cpp), ik_llama.cpp's, and bartowski's."""
_UNSLOTH = """
Q2_K_XL Q3_K_XL Q4_K_XL Q5_K_XL Q6_K_XL Q8_K_XL TQ1_0 IQ1_S IQ1_M IQ2_XXS IQ2_M IQ3_XXS IQ3_S IQ4_XS
"""
"""The mixes that have `UD-` in front of them in its repositories."""
QUANTS = (*_PLAIN.split(), *(f"UD-{name}" for name in _UNSLOTH.split()))


NO_FILE = Rule(
    "LH250",
    "No file of a model has this name.",
    why="""
    `herd lock` would find nothing on the hub. A quant is written as in names of files, and a pattern ends
    in `.gguf`.
    """,
    example="""
    models:
      35b: {quant: UD_Q3_K_XL}
    """,
    after="""
    A pattern that can match nothing is an error. A quant that is nearly a known one is a warning, and so is `quant`
    together with `files`, which then decides alone.
    """,
    fix="write the quant that the help line names. The repository's page shows its files.",
    sometimes=("warning",),
)


def check_model_files(subject: RigContext) -> Iterator[Finding]:
    """Report quants and patterns that match no file name."""
    rig = subject.rig
    in_folders = served_whole(rig)
    for name, model in rig.models.items():
        if model.hf is None or name in in_folders:
            continue
        declared = subject.document.data.get("models", {}).get(name)
        if isinstance(declared, dict) and declared.keys() >= {"quant", "files"}:
            place = subject.document.key(("models", name, "quant"))
            yield NO_FILE.at(place, "`files` sets the files, and `quant` does nothing", "leave `quant` out", "warning")
        elif model.quant and (help_ := _other_quant(model.quant)):
            message = f"`{model.quant}` is not a known quant"
            path = ("models", name, "quant")
            same = next((each for each in QUANTS if is_same_value(model.quant, each)), None)
            edits = value_edit(subject.document, path, same) if same else ()
            yield NO_FILE.at(subject.document.value(path), message, help_, "warning", edits)
        elif not model.quant and (found := _no_pattern(model)):
            yield NO_FILE.at(subject.document.value(("models", name, "files")), *found)


def _other_quant(quant: str) -> str | None:
    """Return the fix for an invalid quant; None for one that exists, or may exist."""
    if quant.removesuffix(".gguf").upper() in QUANTS and quant.endswith(".gguf"):
        return f"did you mean `quant: {quant.removesuffix('.gguf')}`?"
    if quant.endswith(".gguf"):
        return f"write `files: {yaml_value(quant)}` in its place: `quant` is a part of a file's name"
    if quant.upper() in QUANTS:
        return None
    if meant := quant_of_bits(quant):
        return f"did you mean `quant: {meant}`? Files are named by how they are quantised, and not by bits"
    close = nearest_name(quant, (known for known in QUANTS if re.findall(r"\d", known) == re.findall(r"\d", quant)))
    joined = [known for known in QUANTS if _bare(known) == _bare(quant)]
    meant = joined[0] if len(joined) == 1 else close
    if meant:
        return f"did you mean `quant: {meant}`?"
    if mix := re.fullmatch(r"Q([2-8])_K_[A-Z]", quant.upper()):
        return f"known are {', '.join(known for known in QUANTS if known.startswith(f'Q{mix[1]}_'))}"
    if bits := re.fullmatch(r"I?Q([079]|\d\d)\b.*", quant.upper().replace("_", " ")):
        return f"no quant has {int(bits[1])} bits: write one such as `quant: Q4_K_M`"
    return None


def _bare(quant: str) -> str:
    return re.sub(r"[^a-z0-9]", "", quant.lower())


def _no_pattern(model: Model) -> tuple[str, str] | None:
    """Return why a pattern matches no file of a repository, and the fix."""
    files = model.files
    if files.startswith(("/", "~")):
        message = f"`{files}` is a path of a machine, and `files` are paths of the repository"
        return message, f"write the name alone, `files: {yaml_value(files.rpartition('/')[2])}`"
    if re.search(r"[*?\[]", files) and re.search(r"[A-Za-z0-9]$", files) and not files.endswith(".gguf"):
        message = f"no GGUF file matches `{files}`: their names end with `.gguf`"
        return message, f"did you mean `files: {yaml_value(f'{files}*.gguf')}`?"
    if re.search(r"[*?\[]", files) or files.endswith(".gguf"):
        return None
    message = f"no GGUF file is called `{files}`"
    if files.upper() in QUANTS or _other_quant(files):
        return message, f"did you mean `quant: {files}`?"
    return message, f"write `files: {yaml_value(f'{files}.gguf')}` for one, or `files: {yaml_value(f'*{files}*.gguf')}`"


NO_TAG = Rule(
    "LH252",
    "There is no image with this tag.",
    why="""
    llama.cpp publishes `full`, `light` and `server` images, each with the kind of GPU behind it, and none by
    other names.
    """,
    example="""
    engines:
      pulled: {kind: llama.cpp, image: "ghcr.io/ggml-org/llama.cpp:server-cublas-b11434"}
    instances:
      helper: {engine: pulled, backend: compose}
    """,
    fix="write the tag that the help line names, such as `server-cuda`.",
    severity="warning",
)


def check_image_tags(subject: RigContext) -> Iterator[Finding]:
    """Report tags of images that do not exist."""
    for name, engine in subject.rig.engines.items():
        tag = re.search(r":([^:/@]+)$", (engine.image or "").split("@")[0])
        if engine.image and tag and untagged(engine.image) == LLAMA_CPP and not is_published_tag(tag[1]):
            message = f"`{LLAMA_CPP}` has no tag `{tag[1]}`"
            help_ = f"did you mean `image: {LLAMA_CPP}:{same_tag(tag[1])}`?"
            yield NO_TAG.at(subject.document.value(("engines", name, "image")), message, help_)


ALL = frozenset(("all", "all-major", "native"))
"""CMake's words for every architecture, every major one, and that of the GPUs of the machine it builds on."""
ELEMENT = re.compile(r"([0-9]{2,3})([af]?)(-real|-virtual)?")


OPTION_AGAINST_RIG = Rule(
    "LH215",
    "A CMake option leaves out the GPUs that the engine's instances are on.",
    why="A build without CUDA uses no GPU; code for one architecture runs on others only within NVIDIA's rules.",
    example="""
    engines:
      main: {options: {CMAKE_CUDA_ARCHITECTURES: "120"}}
    """,
    fix="leave the option out: llamaherd builds for the GPUs in use.",
)


def check_build_architectures(subject: RigContext) -> Iterator[Finding]:
    """Report builds without CUDA for instances on GPUs, and builds for other architectures than those of the GPUs."""
    for name, engine in subject.rig.engines.items():
        cards = _cards(subject, name)
        if not engine.is_built or not cards:
            continue
        where = ("engines", name, "options")
        if not is_on(engine.options.get("GGML_CUDA", True)):
            message = f"engine `{name}` is built without CUDA, and instances of it are on GPUs"
            place = subject.document.value((*where, "GGML_CUDA"))
            yield OPTION_AGAINST_RIG.at(place, message, "leave `GGML_CUDA` out: it is on where there are GPUs")
        elif missing := [card for card in cards.items() if not _covered(engine, card[1])]:
            card, declared = missing[0]
            architectures = engine.options["CMAKE_CUDA_ARCHITECTURES"]
            message = f"engine `{name}` is built for architecture {architectures}, which GPU `{card}` "
            message += f"({declared.model}, {declared.cuda_architecture}) does not run"
            help_ = "leave `CMAKE_CUDA_ARCHITECTURES` out: it is that of the GPUs in use"
            place = subject.document.value((*where, "CMAKE_CUDA_ARCHITECTURES"))
            yield OPTION_AGAINST_RIG.at(place, message, help_)


def _cards(subject: RigContext, engine: str) -> dict[str, Card]:
    declared = subject.rig.gpus.cards if subject.rig.gpus else {}
    names = [card for each in subject.rig.instances.values() if each.engine == engine for card in each.on]
    return {name: declared[name] for name in names if name in declared}


def _covered(engine: Engine, card: Card) -> bool:
    """Return whether code of an architecture in the option runs on a GPU, or is compiled for it when it is loaded."""
    value = engine.options.get("CMAKE_CUDA_ARCHITECTURES")
    parts = [part.strip() for part in re.split("[;,]", str(value))] if value is not None else []
    if not parts or ALL & set(parts):
        return True
    found = [ELEMENT.fullmatch(part) for part in parts]
    return any(one is None or _runs(one, int(card.cuda_architecture.rstrip("af"))) for one in found)


def _runs(element: re.Match[str], card: int) -> bool:
    """Apply NVIDIA's rules: machine code within a major version, PTX upwards; `a` on that one alone, `f` in its family.

    CUDA C++ Programming Guide, "Application Compatibility".
    """
    number, exact, kind = int(element[1]), element[2], element[3]
    if exact == "a":
        return number == card
    if exact == "f" or kind == "-real":
        return number // 10 == card // 10 and number <= card
    return number <= card


LACKS = Rule(
    "LH272",
    "A build lacks a feature that an instance needs.",
    why="""
    `--rpc` needs `GGML_RPC`, every instance needs the server, and some options need each other: CMake stops, or the
    engine refuses its arguments.
    """,
    example="""
    instances:
      coder:
        extra_args: [--rpc, "192.168.1.5:50052"]
    """,
    fix="set the option of the engine, or leave the argument out.",
)


def check_build_features(subject: RigContext) -> Iterator[Finding]:
    """Report engines without a server, and builds without a feature that an argument of an instance needs."""
    for name, engine in subject.rig.engines.items():
        if engine.is_built:
            yield from _server(subject, name, engine)
            yield from _loaded_apart(subject, name, engine)
    for name, instance, declared in subject.servers:
        if not reads_gguf(declared):
            continue
        rpc = next((index for index, word in enumerate(instance.extra_args) if word == "--rpc"), None)
        # Releases have RPC (llama.cpp b11434, .github/workflows/release.yml).
        if rpc is None or declared.release or (declared.source and is_on(declared.options.get("GGML_RPC", False))):
            continue
        place = subject.document.word(("instances", name, "extra_args"), instance.extra_args, rpc)
        if declared.source:
            message = f"`--rpc` is refused by engine `{instance.engine}`, which is built without RPC"
            help_ = f"add `options: {{GGML_RPC: true}}` to engine `{instance.engine}`"
            yield LACKS.at(place, message, help_)


def _server(subject: RigContext, name: str, engine: Engine) -> Iterator[Finding]:
    for option in TRAITS[engine.kind].server_options:
        if option in engine.options and not is_on(engine.options[option]):
            place = subject.document.key(("engines", name, "options", option))
            yield LACKS.at(place, f"with `{option}` off, engine `{name}` has no server", "leave it out")


def _loaded_apart(subject: RigContext, name: str, engine: Engine) -> Iterator[Finding]:
    """Report options that llama.cpp b11434, ggml/src/CMakeLists.txt, refuses: backends that are both loaded as
    libraries and linked in.
    """
    options = engine.options
    apart = is_on(options.get("GGML_BACKEND_DL", False))
    place = subject.document.key(("engines", name, "options", "GGML_BACKEND_DL"))
    if apart and "BUILD_SHARED_LIBS" in options and not is_on(options["BUILD_SHARED_LIBS"]):
        message = "`GGML_BACKEND_DL` loads backends as libraries, and `BUILD_SHARED_LIBS` is off: CMake stops"
        yield LACKS.at(place, message, "leave out one of the two")
    if is_on(options.get("GGML_CPU_ALL_VARIANTS", False)) and not apart and TRAITS[engine.kind].variants_need_libraries:
        place = subject.document.key(("engines", name, "options", "GGML_CPU_ALL_VARIANTS"))
        message = "`GGML_CPU_ALL_VARIANTS` needs `GGML_BACKEND_DL`: CMake stops without it"
        yield LACKS.at(place, message, "add `GGML_BACKEND_DL: true`, or leave it out: this host needs one variant")
