"""Options that conflict with each other, with the model or with the rig, or have no effect: all rules of llama.cpp.

Each rule has its place in the engine's source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.findings import Rule
from llamaherd.diagnostics.spelling import misspelled_name
from llamaherd.engines import vllm
from llamaherd.engines.flags.access import (
    find_guessed_keys,
    find_missing_encryption,
    find_openings,
    find_wrong_addresses,
)
from llamaherd.engines.flags.arguments import NO_NUMBER
from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.engines.flags.effective import OFF, Conflict, ConflictFinder, EffectiveOptions, Option, ServerContext
from llamaherd.engines.flags.overrides import find_bad_overrides, find_unreached_overrides
from llamaherd.engines.flags.placement import (
    TOO_MANY,
    attention_off,
    find_excess_shares,
    find_gpu_order,
    find_hidden_gpus,
    find_impossible_split,
    find_negative_layers,
    find_useless_fit,
    find_wrong_devices,
    visible_gpus,
)
from llamaherd.engines.flags.task import (
    BATCH,
    PARALLEL,
    UBATCH,
    find_ignored_heads,
    find_missing_draft_type,
    find_own_draft,
    find_short_inputs,
    find_useless_draft_settings,
)
from llamaherd.reference.releases import BadBuild, bad_builds

SOURCES = ("--model", "--model-url", "--hf-repo", "--docker-repo")
OF_A_ROUTER = ("--models-preset", "--models-dir", "--models-max", "--models-autoload")


NO_EFFECT = Rule(
    "LH256",
    "An option has no effect together with another one.",
    why="""
    The engine accepts both and uses one of them: a router's settings with a model, shares with one GPU, a template's
    arguments without Jinja.
    """,
    example="""
    llama-server -m model.gguf --models-preset models.ini --port 8080
    """,
    language="sh",
    fix="leave out the one that is not meant.",
    severity="warning",
)


def _without_effect(option: Option, message: str, help_: str, *others: Option) -> Conflict:
    return Conflict(NO_EFFECT, (option, *others), message, help_)


def _splitting(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report shares with one GPU, and a main GPU with several (b11434, src/llama.cpp:289-301, common/arg.cpp:2862)."""
    mode, shares, main = effective.get("--split-mode"), effective.get("--tensor-split"), effective.get("--main-gpu")
    alone = mode is not None and mode.value == "none"
    if mode and shares and alone:
        yield _without_effect(
            shares, f"{shares} has no effect together with {mode}: one GPU holds it all", f"leave out {mode}", mode
        )
    number, cards = effective.number("--main-gpu", default=0), visible_gpus(effective, around)
    there = cards is None or number < cards  # else another rule reports it
    if main and not alone and effective.catalogue.kind == "llama.cpp" and number > 0 and there:
        help_ = f"add `--split-mode none` for GPU {main.value} alone, or leave it out"
        yield _without_effect(
            main, f"{main} does nothing where GPUs share a model, as they do without `-sm none`", help_
        )


def _router(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report options of a router for a server with a model (llama.cpp b11434, tools/server/server.cpp:150-153)."""
    model = effective.get(*SOURCES)
    if model is None:
        return
    for name in OF_A_ROUTER:
        if option := effective.get(name):
            message = f"{option} has no effect together with {model}: a server with a model of its own is no router"
            yield _without_effect(option, message, f"leave out {option}, or {model}", model)
            return


def _experts(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    every, some = effective.get("--cpu-moe"), effective.get("--n-cpu-moe")
    if every and every.on and some:
        message = f"{some} has no effect together with {every}, which keeps the experts of all layers in RAM"
        yield _without_effect(some, message, f"leave out {every}, or {some}", every)


def _shifting(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report a shift of a cache that cannot be shifted (b11434, tools/server/server-context.cpp:1307-1323)."""
    shift, projector = effective.get("--context-shift"), effective.get("--mmproj")
    if shift and effective.is_on("--context-shift") and (projector or around.shifts is False):
        because = f"together with {projector}" if projector else "for this model, whose cache cannot be moved"
        yield _without_effect(
            shift, f"{shift} has no effect {because}: the server ends a text where its context does", "leave it out"
        )


def _fitting(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report settings of fitting without effect: a given context is not made smaller (b11434, common/fit.cpp)."""
    if effective.catalogue.kind != "llama.cpp":
        return
    fit = effective.get("--fit")
    least, context = effective.get("--fit-ctx"), effective.get("--ctx-size")
    for name in ("--fit-target", "--fit-ctx"):
        option = effective.get(name)
        if option and fit and fit.value.lower() in OFF:
            yield _without_effect(
                option, f"{option} has no effect together with {fit}", f"leave out {option}, or {fit}", fit
            )
            return
    if least and context:
        message = f"{least} has no effect together with {context}: a context that is given is kept"
        yield _without_effect(least, message, f"leave out {least}, or {context}", context)


def _templates(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report arguments of a template without Jinja (common_chat_templates_apply() of both engines)."""
    arguments, jinja = effective.get("--chat-template-kwargs"), effective.get("--jinja")
    off = not jinja.on if jinja else effective.catalogue.kind == "ik_llama.cpp"
    if arguments and off:
        help_ = f"leave out `{jinja.words[0]}`" if jinja else "add `--jinja`"
        yield _without_effect(
            arguments, f"{arguments} does nothing without `--jinja`", help_, *([jinja] if jinja else [])
        )


def _ranking(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report two ways of pooling (llama.cpp b11434, common/arg.cpp:3494-3499)."""
    ranking, pooling = effective.get("--reranking"), effective.get("--pooling")
    if ranking and ranking.on and pooling and pooling.value != "rank":
        message = f"{pooling} and {ranking} contradict each other: ranks are one way of pooling, and the last counts"
        yield Conflict(NO_EFFECT, (pooling, ranking), message, f"leave out {pooling}")


def _no_device(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report layers on GPUs with the device `none`, which means no GPU (llama.cpp b11434, common/arg.cpp:1128)."""
    device, layers = effective.get("--device"), effective.get("--gpu-layers", "--n-gpu-layers")
    if device and device.value == "none" and layers and layers.value not in ("0", "auto", "-1"):
        yield _without_effect(
            layers, f"{layers} has no effect together with {device}", f"leave out {device}, or {layers}", device
        )


def _beaten(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report variables that the command line overrides, with a warning in the log (b11434, common/arg.cpp:720-765)."""
    if effective.catalogue.env == "above":
        return
    for option in effective.said:
        if option.origin == "environment" and not option.flag.repeats:
            given = (each for each in effective.said if each.origin == "argument")
            beats = next((each for each in given if each.flag == option.flag), None)
            if beats and (beats.values, beats.on) != (option.values, option.on):
                message = f"{option} has no effect together with {beats}: the command line beats variables"
                yield _without_effect(option, message, f"leave out {option}, or {beats}", beats)


REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+:[\w.-]+")
OTHER_FORMATS = (".safetensors", ".safetensors.index.json", ".pt", ".pth", ".onnx", "pytorch_model.bin")


NO_MODEL = Rule(
    "LH273",
    "The engine cannot load the value as a model.",
    why="""
    llama.cpp and ik_llama.cpp load a GGUF file by its path: no address, no repository, no weights of another format, no
    vision projector alone.
    """,
    example="""
    llama-server -m unsloth/Qwen3-8B-GGUF:Q4_K_M --port 8080
    """,
    language="sh",
    fix="give the path of a GGUF file.",
)


def find_unloadable_model(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report models that are not the path of a GGUF file (llama.cpp b11434, src/llama-model-loader.cpp)."""
    option = effective.get("--model")
    if option is None:
        return
    value, name = option.value, option.value.rpartition("/")[2].lower()
    if re.match(r"https?://", value):
        flag = effective.catalogue.first("--model-url")
        way_out = f"write `{flag} {value}`, or fetch it first" if flag else "fetch it first"
        yield Conflict(NO_MODEL, (option,), f"{option} is an address, and the engine needs a path", way_out)
    elif REPOSITORY.fullmatch(value) and not name.endswith(".gguf"):
        flag = effective.catalogue.first("--hf-repo")
        way_out = f"write `{flag} {value}`, or fetch it first" if flag else "fetch its file first"
        yield Conflict(NO_MODEL, (option,), f"{option} names a repository, and the engine needs a path", way_out)
    elif name.endswith(OTHER_FORMATS):
        message = f"{option} is no GGUF file, and the engine loads no other"
        yield Conflict(NO_MODEL, (option,), message, "take a repository of GGUF files, or convert it")
    elif name.startswith("mmproj"):
        message = f"{option} is a vision projector, and no model"
        yield Conflict(NO_MODEL, (option,), message, "give the model by `-m`, and this by `--mmproj`")


BUILT_IN = frozenset(
    (
        *("bailing", "bailing-think", "bailing2", "chatglm3", "chatglm4", "chatml", "command-r", "deepseek"),
        *("deepseek-ocr", "deepseek2", "deepseek3", "exaone-moe", "exaone3", "exaone4", "falcon3", "gemma"),
        *("gigachat", "glmedge", "gpt-oss", "granite", "granite-4.0", "granite-4.1", "grok-2", "hunyuan-dense"),
        *("hunyuan-moe", "hunyuan-vl", "kimi-k2", "llama2", "llama2-sys", "llama2-sys-bos", "llama2-sys-strip"),
        *("llama3", "llama4", "megrez", "minicpm", "mistral-v1", "mistral-v3", "mistral-v3-tekken", "mistral-v7"),
        *("mistral-v7-tekken", "monarch", "openchat", "orion", "pangu-embedded", "phi3", "phi4", "rwkv-world"),
        *("bitnet", "falcon_e", "seed_oss", "smolvlm", "solar-open", "vicuna", "vicuna-orca", "yandex", "zephyr"),
    )
)
"""Names of templates if Jinja is off (llama.cpp b11434, src/llama-chat.cpp, LLM_CHAT_TEMPLATES; ik_llama.cpp 67268c8fd,
src/llama.cpp). Any name that begins with `mistral` is accepted, too."""
WITH_JINJA = "chatml"
"""The only name of a template if Jinja is on: any other word is the template itself, and becomes each prompt
(llama.cpp b11434, common/chat.cpp:780; ik_llama.cpp 67268c8fd, common/chat.cpp)."""


PATH_AS_TEXT = Rule(
    "LH216",
    "A path is given in place of a text.",
    why="`--chat-template` takes the template itself, or the name of one that is built in.",
    example="""
    llama-server -m model.gguf -c 8192 --chat-template ./qwen.jinja
    """,
    language="sh",
    fix="write `--chat-template-file`.",
)


def find_wrong_template(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report paths and unknown names in place of the text of a template."""
    option = effective.get("--chat-template")
    if option is None or "{" in option.value:
        return
    value = option.value
    if value.endswith((".jinja", ".jinja2", ".j2", ".txt")) or value.startswith(("/", "./", "~")):
        message = f"{option} takes the path itself for the template"
        yield Conflict(PATH_AS_TEXT, (option,), message, f"write `--chat-template-file {value}`")
    elif re.fullmatch(r"[\w.-]+", value):
        yield from _name(effective, option)


NO_TEMPLATE = Rule(
    "LH277",
    "A name is not a chat template.",
    why="""
    With Jinja, which is llama.cpp's default, `--chat-template` takes the text of a template, and one name: `chatml`.
    Any other word is the whole template: the model gets this word for every prompt. Without Jinja (`--no-jinja`, and
    ik_llama.cpp unless `--jinja` is given) about fifty names are known, and the server does not start with others.
    """,
    example="""
    llama-server -m model.gguf -c 8192 --chat-template chatlm
    """,
    language="sh",
    fix="leave it out: models bring their own template. Or write `--chat-template-file`.",
)


def _name(effective: EffectiveOptions, option: Option) -> Iterator[Conflict]:
    """Report a word that is not a template. Builds of llama.cpp older than every catalogue have Jinja off."""
    jinja = effective.get("--jinja")
    on = jinja.on if jinja else effective.catalogue.kind == "llama.cpp" and effective.catalogue.exact
    named = option.value in BUILT_IN or option.value.startswith("mistral")
    if option.value == WITH_JINJA or (named and not on):
        return
    close = misspelled_name(option.value, (WITH_JINJA,) if on else BUILT_IN)
    way_out = f"did you mean `{close}`?" if close else "leave it out: the model brings its own"
    if named:
        way_out = "leave it out: the model brings its own; or add `--no-jinja`"
    message = f"{option} names no template of the engine"
    if on:
        message = f"with Jinja, {option} is the template itself, so that every prompt is `{option.value}`"
    yield Conflict(NO_TEMPLATE, (option,), message, way_out)


BAD_BUILD = Rule(
    "LH177",
    "An engine's build has a known fault with an argument of a server.",
    why="""
    llama.cpp b10741 to b10748 do not start with `draft-mtp` (ggml-org/llama.cpp#28196). Toolkits with known faults
    are reported by LH042.
    """,
    example="""
    engines:
      main: {ref: b10745}
    """,
    fix="write a newer build, as in the help line.",
    severity="warning",
)


def known_faults(catalogue: Catalogue) -> tuple[BadBuild, ...]:
    """Return the known faults of the requested version."""
    return bad_builds(catalogue.requested or catalogue.version) if catalogue.kind == "llama.cpp" else ()


def find_faulty_options(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report each option with which the build is known to fail."""
    for bad in known_faults(effective.catalogue):
        option = effective.get(bad.flag)
        if option and bad.value in option.value.split(","):
            message = f"{bad.named} of llama.cpp {bad.fault} with `{bad.value}` ({bad.source}, {bad.reported})"
            yield Conflict(BAD_BUILD, (option,), message, f"write `ref: b{bad.last + 1}` or a newer build")


CONTEXT = ("--ctx-size",)
MOST_SLOTS = 256
"""LLAMA_MAX_SEQ (llama.cpp b11434, src/llama-cparams.h)."""
LITTLE = 4096
"""With fewer tokens in a slot, the context was probably meant for each slot."""


def find_conflicts(effective: EffectiveOptions, around: ServerContext | None = None) -> Iterator[Conflict]:
    """Yield the conflicts among the options of a server."""
    for find in vllm.FINDERS if effective.catalogue.kind == "vllm" else FINDERS:
        yield from find(effective, around or ServerContext())


NO_ATTENTION = Rule(
    "LH054",
    "The V cache is quantised, and flash attention is switched off.",
    why="The engine refuses to start. K alone may be quantised without it.",
    example="""
    instances:
      coder: {kv: q8_0, flash_attention: "off"}
    """,
    fix="leave `flash_attention` out.",
)


def _attention(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report a quantised V cache without flash attention.

    llama.cpp b11434, src/llama-context.cpp:3843; ik_llama.cpp 67268c8fd, src/llama.cpp:5369.
    """
    values, attention = effective.get("--cache-type-v"), attention_off(effective)
    if values and attention and not values.value.endswith(("f16", "f32")):
        message = f"a V cache of type `{values.value}` needs flash attention, and {attention} switches it off"
        yield Conflict(NO_ATTENTION, (values, attention), message, f"leave out {attention}, or {values}")


TOO_MANY_THREADS = Rule(
    "LH060",
    "An instance has more threads than there are physical cores.",
    why="""
    SMT siblings share one core: threads on both wait for each other. On the rig [budget](../rigs/budget.md),
    sixteen threads on eight cores were eight times slower.
    """,
    example="""
    instances:
      helper: {threads: 24}
    """,
    fix="leave `threads` out, or write at most `host.cpu.cores`.",
)


ALL_PROCESSORS = Rule(
    "LH217",
    "A server has threads on every logical processor.",
    why="`-t -1` and `-t 0` do not mean the default: they mean all of them, SMT siblings too.",
    example="""
    llama-server -m model.gguf -c 8192 -t -1
    """,
    language="sh",
    fix="leave it out, or give the number of physical cores.",
    severity="warning",
)


def _threads(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report more threads than cores. Zero or less means every logical processor.

    llama.cpp b11434, common/arg.cpp:1520; ik_llama.cpp 67268c8fd, common.cpp.
    """
    for name in ("--threads", "--threads-batch"):
        option = effective.get(name)
        number = effective.number(name, default=1)
        if option and number <= 0 and name == "--threads":
            message = f"{option} computes on every logical processor, SMT siblings too, which slows decoding down"
            help_ = "leave it out, or give the number of physical cores"
            yield Conflict(ALL_PROCESSORS, (option,), message, help_)
        if option and around.cores and number > around.cores:
            message = f"{option} are more threads than there are physical cores: {around.cores}"
            help_ = f"write {around.cores} at most: more only wait for each other, and SMT siblings are no cores"
            yield Conflict(TOO_MANY_THREADS, (option,), message, help_)


SMALL_SLOTS = Rule(
    "LH214",
    "A context is shared by slots, so that each has little.",
    why="`-c` is the whole. Each of `-np` slots has its part of it, unless `--kv-unified` lets them share.",
    example="""
    llama-server -m model.gguf -c 8192 -np 4
    """,
    language="sh",
    fix="write the context of the help line, if each request must have as much.",
    severity="note",
)


def _slots(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report small slots: they divide the context, unless they share it (b11434, src/llama-context.cpp:291-308)."""
    context, slots = effective.get(*CONTEXT), effective.get(*PARALLEL)
    if slots and effective.number(*PARALLEL, default=1) > MOST_SLOTS and effective.catalogue.kind == "llama.cpp":
        message = f"{slots} are more slots than the {MOST_SLOTS} that llama.cpp serves at most"
        yield Conflict(TOO_MANY, (slots,), message, f"write {MOST_SLOTS} at most")
    tokens, number = effective.number(*CONTEXT, default=0), effective.number(*PARALLEL, default=1)
    if context and tokens < 0:
        message = f"{context} means four thousand million tokens: the engine reads it as an unsigned number"
        yield Conflict(NO_NUMBER, (context,), message, f"write `{context.words[0]} 0` for as many as the model has")
    if not (context and slots) or number < 2 or effective.is_on("--kv-unified"):
        return
    if 0 < tokens // number < LITTLE:
        message = f"{context} is shared by {number} slots: each request has {tokens // number} tokens"
        help_ = f"write `{context.words[0]} {tokens * number}` for {tokens} tokens each"
        yield Conflict(SMALL_SLOTS, (context, slots), message, help_)


CUT_BATCH = Rule(
    "LH219",
    "The computed batch is larger than the queued batch.",
    why="`--ubatch-size` is cut to `--batch-size`, which is 2048 unless you set it.",
    example="""
    instances:
      coder: {ubatch: 4096}
    """,
    fix="set both: in a rig, `batch` and `ubatch`.",
    severity="warning",
)


def _batches(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report a computed batch that is larger than the queued one (llama.cpp b11434, src/llama-context.cpp:250)."""
    computed = effective.get("--ubatch-size")
    queued, batch = effective.number("--batch-size", default=BATCH), effective.get("--batch-size")
    number = effective.number("--ubatch-size", default=UBATCH)
    if computed and number > queued > 0:
        message = f"{computed} is cut to {queued}: no more is computed at once than `--batch-size` queues"
        options = (computed, batch) if batch else (computed,)
        besides = "" if batch else " besides"
        yield Conflict(CUT_BATCH, options, message, f"write `--batch-size {number}`{besides}")


KEY_VALUE = re.compile(r"[^=,]{1,127}=(?:int:-?[0-9]+|float:[-+0-9.eE]+|bool:(?:true|false)|str:[^,]{0,127})")


BAD_METADATA = Rule(
    "LH126",
    "A replaced hyperparameter has a form that the engine refuses.",
    why="`--override-kv` takes `KEY=TYPE:VALUE`, and the type is `int`, `float`, `bool` or `str`.",
    example="""
    instances:
      coder: {extra_args: [--override-kv, "tokenizer.ggml.add_bos_token=false"]}
    """,
    fix="write it in the form of the help line.",
)


def _metadata(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report overrides that are not KEY=TYPE:VALUE, with commas between several.

    llama.cpp b11434, common/common.cpp, string_parse_kv_override.
    """
    for option in effective.every("--override-kv"):
        if not all(KEY_VALUE.fullmatch(part) for part in re.split(r"(?<!\\),", option.value)):
            message = f"{option} is no `KEY=TYPE:VALUE`, where the type is `int`, `float`, `bool` or `str`"
            help_ = "write one such as `tokenizer.ggml.add_bos_token=bool:false`"
            yield Conflict(BAD_METADATA, (option,), message, help_)


NOT_REUSED = Rule(
    "LH222",
    "`cache_reuse` cannot move parts of the cache.",
    why="""
    A hybrid model's state, positions of several numbers, and pictures cannot be shifted. The server logs this and
    reuses the common beginning alone.
    """,
    example="""
    llama-server -m model.gguf -c 8192 --mmproj mmproj.gguf --cache-reuse 256
    """,
    language="sh",
    fix="leave it out.",
    severity="warning",
)


def _reuse(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report caches that cannot be shifted (llama.cpp b11434, tools/server/server-context.cpp:1312-1326)."""
    option = effective.get("--cache-reuse")
    if option is None or effective.number("--cache-reuse", default=0) <= 0:
        return
    projector = effective.get("--mmproj")
    if around.shifts is False or projector:
        because = f"together with {projector}" if projector else "for this model, whose cache cannot be moved"
        message = f"{option} has no effect {because}: only the common beginning of a prompt is reused"
        yield Conflict(NOT_REUSED, (option,), message, "leave it out")


FINDERS: tuple[ConflictFinder, ...] = (
    *(
        _attention,
        find_useless_fit,
        find_impossible_split,
        find_excess_shares,
        find_bad_overrides,
        find_unreached_overrides,
        find_negative_layers,
        find_wrong_devices,
        _threads,
    ),
    *(
        find_unloadable_model,
        find_ignored_heads,
        find_missing_draft_type,
        find_own_draft,
        find_useless_draft_settings,
    ),
    *(_splitting, _router, _experts, _shifting, _fitting, _templates, _ranking, _no_device, _beaten),
    find_faulty_options,
    *(
        _slots,
        _batches,
        find_short_inputs,
        find_wrong_template,
        _metadata,
        _reuse,
        find_gpu_order,
        find_hidden_gpus,
        find_wrong_addresses,
        find_missing_encryption,
        find_openings,
        find_guessed_keys,
    ),
)
