"""vLLM, which comes as a container image: its flags, and the arguments that vLLM 0.33.0 refuses at its start."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines.dialect import Dialect, Scratch, Traits
from llamaherd.engines.flags.access import find_guessed_keys, find_wrong_addresses
from llamaherd.engines.flags.effective import Conflict, ConflictFinder, EffectiveOptions, ServerContext
from llamaherd.engines.flags.placement import TOO_MANY, find_gpu_order, find_hidden_gpus, visible_gpus
from llamaherd.text.numbers import parse_real

OF_GGUF = re.compile(r"(?:UD-)?I?Q[1-8]_\w+|BF16|F16", re.IGNORECASE)
"""Names of quantisations of llama.cpp's files; vLLM names methods."""
IN_HUB = re.compile(r"[\w.-]+/[\w.-]+:(?:UD-)?I?Q[1-8]_\w+", re.IGNORECASE)
"""A repository with one of its quants, as vLLM writes it."""
METHODS = {"awq": ("awq", "awq_marlin"), "gptq": ("gptq", "gptq_marlin", "gptq_bitblas")}
"""The methods by a word in a model's name."""

OF_JSON: Mapping[str, str] = {
    "--speculative-config": '"method": "mtp", "num_speculative_tokens": 2',
    "--hf-overrides": '"max_position_embeddings": 65536',
    "--override-generation-config": '"temperature": 0.6',
}
"""Options that take a JSON object, each with an example of its content."""


VLLM_REFUSES = Rule(
    "LH261",
    "vLLM refuses options together, or by their value.",
    why="""
    A share of a GPU is above 1. Tools have no parser. A method is not the model's. A batch has fewer tokens than
    requests.
    """,
    example="""
    vllm serve Qwen/Qwen3-8B --host 127.0.0.1 --enable-auto-tool-choice
    """,
    language="sh",
    fix="apply the fix of the finding.",
)


def _share(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report a share of GPU memory that is not above 0 and at most 1 (config/cache.py)."""
    option = effective.get("--gpu-memory-utilization")
    try:
        share = parse_real(option.value) if option else 0.9
    except ValueError:
        return
    if option and not 0 < share <= 1:
        help_ = f"write {share / 100:g}" if 10 <= share <= 100 else "write a share, such as 0.9"
        message = f"{option} is no share of a card: vLLM takes more than 0 and 1 at most"
        yield Conflict(VLLM_REFUSES, (option,), message, help_)


def _cards(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report more processes than GPUs: there is one for each GPU in each stage (config/parallel.py)."""
    tensor, stages = effective.get("--tensor-parallel-size"), effective.get("--pipeline-parallel-size")
    wanted = effective.number("--tensor-parallel-size", default=1)
    wanted *= effective.number("--pipeline-parallel-size", default=1)
    cards = visible_gpus(effective, around)
    options = tuple(option for option in (tensor, stages) if option)
    if options and cards is not None and cards < wanted and not effective.get("--nnodes", "--headless"):
        both = " and ".join(map(str, options))
        message = f"{both} need {wanted} GPUs, and the server has {cards}: vLLM does not start"
        yield Conflict(TOO_MANY, options, message, f"write {max(1, cards)} at most, or give it more GPUs")


def _tools(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report tools without a parser (entrypoints/openai/cli_args.py, validate_parsed_serve_args)."""
    tools = effective.get("--enable-auto-tool-choice")
    if tools and tools.on and effective.get("--tool-call-parser") is None:
        message = f"{tools} needs a parser for the model's output, and vLLM does not start without one"
        help_ = "add `--tool-call-parser` with the one of the model's family, such as `hermes` for Qwen"
        yield Conflict(VLLM_REFUSES, (tools,), message, help_)


def _batches(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report batches with too few tokens (config/scheduler.py)."""
    tokens, requests = effective.get("--max-num-batched-tokens"), effective.get("--max-num-seqs")
    most = effective.number("--max-num-batched-tokens", default=0)
    if requests and effective.number("--max-num-seqs", default=1) < 1:
        yield Conflict(VLLM_REFUSES, (requests,), f"{requests} serves no request", "write 1 or more")
    elif tokens and requests and 0 < most < effective.number("--max-num-seqs", default=1):
        message = f"{requests} are more requests than {tokens} has tokens for, and vLLM refuses that"
        yield Conflict(VLLM_REFUSES, (requests, tokens), message, f"write `--max-num-seqs {most}` at most")
    chunks, length = effective.get("--enable-chunked-prefill"), effective.get("--max-model-len")
    longest = effective.number("--max-model-len", default=0)
    if chunks and not chunks.on and tokens and length and 0 < most < longest:
        message = f"without chunks a prompt of {longest} tokens does not fit into {tokens}, and vLLM refuses that"
        help_ = f"leave out {chunks}, or write `--max-num-batched-tokens {longest}`"
        yield Conflict(VLLM_REFUSES, (tokens, chunks), message, help_)


def _quantised(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report a quantisation that differs from that of the model's own files (config/model.py, _verify_quantization)."""
    option, model = effective.get("--quantization"), effective.text("--model") or around.model
    if option is None:
        return
    if OF_GGUF.fullmatch(option.value):
        message = f"{option} is how a GGUF file is quantised, and no method of vLLM"
        yield Conflict(VLLM_REFUSES, (option,), message, "leave it out: vLLM reads the method from the model's files")
    for name, methods in METHODS.items():
        others = {each for key, values in METHODS.items() if key != name for each in values}
        if option.value in others and re.search(rf"[-_]{name}\b", model, re.IGNORECASE):
            message = f"{option} is not how `{model}` is quantised, and vLLM refuses that"
            yield Conflict(VLLM_REFUSES, (option,), message, f"leave it out, or write `{methods[0]}`")


def _json(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report values that are not JSON objects, with which vLLM does not start (utils/argparse_utils.py)."""
    for name in OF_JSON:
        option = effective.get(name)
        if option and not _is_object(option.value):
            message = f"{option} is no JSON object: names and texts stand in double quotes, the whole in single ones"
            help_ = f"write such as `{name} '{{{OF_JSON[name]}}}'`"
            yield Conflict(VLLM_REFUSES, (option,), message, help_)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


PLUGGED = Rule(
    "LH281",
    "vLLM loads this kind of model by a plugin.",
    why="""
    vLLM itself no longer loads GGUF files and `OWNER/NAME:QUANT`, and its images do not have the plugin
    `vllm-gguf-plugin`. Without `--tokenizer` it converts the tokenizer from the file, which takes long and does
    not always succeed.
    """,
    example="""
    vllm serve ./Qwen3-8B-Q4_K_M.gguf --host 127.0.0.1
    """,
    language="sh",
    fix="use llama-server, which GGUF files are made for, or the plugin.",
    severity="warning",
)


def _plugged(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report GGUF files: a plugin loads them, which vLLM's images lack (docs/features/quantization/gguf.md of vLLM)."""
    option, model = effective.get("--model"), effective.text("--model") or around.model
    if effective.get("--tokenizer") or not (model.lower().endswith(".gguf") or IN_HUB.fullmatch(model)):
        return  # the tokenizer is what that page requires
    message = f"vLLM loads `{model}` only by its plugin vllm-gguf-plugin, and needs the tokenizer of the original model"
    way_out = "serve it with llama-server; or install the plugin, and add `--tokenizer` with that model's repository"
    yield Conflict(PLUGGED, (option,) if option else (), message, way_out)


FINDERS: tuple[ConflictFinder, ...] = (
    _share,
    _json,
    _cards,
    _tools,
    _batches,
    _quantised,
    _plugged,
    find_gpu_order,
    find_hidden_gpus,
    find_wrong_addresses,
    find_guessed_keys,
)


class Vllm(Dialect):
    """Serves safetensors, on GPUs. Nothing of it is built here, and flags set everything.

    The context is per request, and slots share the cache as needed.
    """

    kind = "vllm"
    traits = Traits(images=("vllm/vllm-openai", "docker.io/vllm/vllm-openai"))
    stop_seconds = 10
    """It ends its workers one by one."""
    scratch = Scratch("8g", executable=True, shared="8g")
    """It compiles kernels where it runs, and its workers share memory."""
    home = "/tmp"
    key_variable = "VLLM_API_KEY"
    command = ("vllm", "serve")
    props_path = None
    health_status = None
    counts_drafts = False
    one_process = False
    opens_ports = True
    """Its workers' TCPStore listens on all addresses, wherever the server does (its docs, security)."""

    def probe(self, url: str, /) -> tuple[str, ...]:
        """Return a command with Python, as the image need not contain curl."""
        return ("python3", "-c", f"import urllib.request as r; r.urlopen('{url}')")
