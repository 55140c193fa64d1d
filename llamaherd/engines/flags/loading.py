"""What is given for a model, and is none that llama.cpp or ik_llama.cpp loads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.clash import Around, Clash
from llamaherd.engines.flags.meant import Meant

REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+:[\w.-]+")
OTHER_FORMATS = (".safetensors", ".safetensors.index.json", ".pt", ".pth", ".onnx", "pytorch_model.bin")


NO_MODEL = Rule(
    "LH273",
    "What stands for a model is none that the engine loads.",
    why="""
    llama.cpp and ik_llama.cpp load a GGUF file by its path: no address, no repository, no weights of another
    format, no vision projector alone.
    """,
    example="""
    llama-server -m unsloth/Qwen3-8B-GGUF:Q4_K_M --port 8080
    """,
    language="sh",
    way_out="give the path of a GGUF file.",
)


def loadable(meant: Meant, _around: Around) -> Iterator[Clash]:
    """Both engines load a GGUF file from a path (llama.cpp b11434, src/llama-model-loader.cpp)."""
    option = meant.get("--model")
    if option is None:
        return
    value, name = option.value, option.value.rpartition("/")[2].lower()
    if re.match(r"https?://", value):
        flag = meant.catalogue.first("--model-url")
        way_out = f"write `{flag} {value}`, or fetch it first" if flag else "fetch it first"
        yield Clash(NO_MODEL, (option,), f"{option} is an address, and a path is wanted", way_out)
    elif REPOSITORY.fullmatch(value) and not name.endswith(".gguf"):
        flag = meant.catalogue.first("--hf-repo")
        way_out = f"write `{flag} {value}`, or fetch it first" if flag else "fetch its file first"
        yield Clash(NO_MODEL, (option,), f"{option} names a repository, and a path is wanted", way_out)
    elif name.endswith(OTHER_FORMATS):
        message = f"{option} is no GGUF file, and the engine loads no other"
        yield Clash(NO_MODEL, (option,), message, "take a repository of GGUF files, or convert it")
    elif name.startswith("mmproj"):
        message = f"{option} is a vision projector, and no model"
        yield Clash(NO_MODEL, (option,), message, "give the model by `-m`, and this by `--mmproj`")
