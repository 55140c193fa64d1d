"""Options that have no effect because of another option, each with its place in the engine's source."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines.flags.effective import Conflict, EffectiveOptions, Option, ServerContext
from llamaherd.engines.flags.placement import visible_gpus

OFF = ("off", "0", "false", "disabled")
SOURCES = ("--model", "--model-url", "--hf-repo", "--docker-repo")
OF_A_ROUTER = ("--models-preset", "--models-dir", "--models-max", "--models-autoload")


def find_options_without_effect(meant: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report all options without effect."""
    for find in (_splitting, _router, _experts, _shifting, _fitting, _templates, _ranking, _no_device, _beaten):
        yield from find(meant, around)


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


def _splitting(meant: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report shares with one GPU, and a main GPU with several (b11434, src/llama.cpp:289-301, common/arg.cpp:2862)."""
    mode, shares, main = meant.get("--split-mode"), meant.get("--tensor-split"), meant.get("--main-gpu")
    alone = mode is not None and mode.value == "none"
    if mode and shares and alone:
        yield _without_effect(
            shares, f"{shares} has no effect together with {mode}: one GPU holds it all", f"leave out {mode}", mode
        )
    number, cards = meant.number("--main-gpu", default=0), visible_gpus(meant, around)
    there = cards is None or number < cards  # else another rule reports it
    if main and not alone and meant.catalogue.kind == "llama.cpp" and number > 0 and there:
        help_ = f"add `--split-mode none` for GPU {main.value} alone, or leave it out"
        yield _without_effect(
            main, f"{main} does nothing where GPUs share a model, as they do without `-sm none`", help_
        )


def _router(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report options of a router for a server with a model (llama.cpp b11434, tools/server/server.cpp:150-153)."""
    model = meant.get(*SOURCES)
    if model is None:
        return
    for name in OF_A_ROUTER:
        if option := meant.get(name):
            message = f"{option} has no effect together with {model}: a server with a model of its own is no router"
            yield _without_effect(option, message, f"leave out {option}, or {model}", model)
            return


def _experts(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    every, some = meant.get("--cpu-moe"), meant.get("--n-cpu-moe")
    if every and every.on and some:
        message = f"{some} has no effect together with {every}, which keeps the experts of all layers in RAM"
        yield _without_effect(some, message, f"leave out {every}, or {some}", every)


def _shifting(meant: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report a shift of a cache that cannot be shifted (b11434, tools/server/server-context.cpp:1307-1323)."""
    shift, projector = meant.get("--context-shift"), meant.get("--mmproj")
    if shift and meant.is_on("--context-shift") and (projector or around.shifts is False):
        because = f"together with {projector}" if projector else "for this model, whose cache cannot be moved"
        yield _without_effect(
            shift, f"{shift} has no effect {because}: the server ends a text where its context does", "leave it out"
        )


def _fitting(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report settings of fitting without effect: a given context is not made smaller (b11434, common/fit.cpp)."""
    if meant.catalogue.kind != "llama.cpp":
        return
    fit = meant.get("--fit")
    least, context = meant.get("--fit-ctx"), meant.get("--ctx-size")
    for name in ("--fit-target", "--fit-ctx"):
        option = meant.get(name)
        if option and fit and fit.value.lower() in OFF:
            yield _without_effect(
                option, f"{option} has no effect together with {fit}", f"leave out {option}, or {fit}", fit
            )
            return
    if least and context:
        message = f"{least} has no effect together with {context}: a context that is given is kept"
        yield _without_effect(least, message, f"leave out {least}, or {context}", context)


def _templates(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report arguments of a template without Jinja (common_chat_templates_apply() of both engines)."""
    arguments, jinja = meant.get("--chat-template-kwargs"), meant.get("--jinja")
    off = not jinja.on if jinja else meant.catalogue.kind == "ik_llama.cpp"
    if arguments and off:
        help_ = f"leave out `{jinja.words[0]}`" if jinja else "add `--jinja`"
        yield _without_effect(
            arguments, f"{arguments} does nothing without `--jinja`", help_, *([jinja] if jinja else [])
        )


def _ranking(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report two ways of pooling (llama.cpp b11434, common/arg.cpp:3494-3499)."""
    ranking, pooling = meant.get("--reranking"), meant.get("--pooling")
    if ranking and ranking.on and pooling and pooling.value != "rank":
        message = f"{pooling} and {ranking} contradict each other: ranks are one way of pooling, and the last counts"
        yield Conflict(NO_EFFECT, (pooling, ranking), message, f"leave out {pooling}")


def _no_device(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report layers on GPUs with the device `none`, which means no GPU (llama.cpp b11434, common/arg.cpp:1128)."""
    device, layers = meant.get("--device"), meant.get("--gpu-layers", "--n-gpu-layers")
    if device and device.value == "none" and layers and layers.value not in ("0", "auto", "-1"):
        yield _without_effect(
            layers, f"{layers} has no effect together with {device}", f"leave out {device}, or {layers}", device
        )


def _beaten(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report variables that the command line overrides, with a warning in the log (b11434, common/arg.cpp:720-765)."""
    if meant.catalogue.env == "above":
        return
    for option in meant.said:
        if option.origin == "environment" and not option.flag.repeats:
            beats = next((each for each in meant.said if each.origin == "argument" and each.flag == option.flag), None)
            if beats and (beats.values, beats.on) != (option.values, option.on):
                message = f"{option} has no effect together with {beats}: the command line beats variables"
                yield _without_effect(option, message, f"leave out {option}, or {beats}", beats)
