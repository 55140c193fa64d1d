"""What is given for a chat template: the template itself, or a name that the engine knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.near import slip
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags.clash import Around, Clash
from llamaherd.engines.flags.meant import Meant, Option

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
"""Templates that are known by name where Jinja is off (llama.cpp b11434, src/llama-chat.cpp, LLM_CHAT_TEMPLATES;
ik_llama.cpp 67268c8fd, src/llama.cpp). What begins with `mistral` is taken for one of those."""
WITH_JINJA = "chatml"
"""The only name that means something where Jinja is on: any other word is the template itself, and so each prompt
(llama.cpp b11434, common/chat.cpp:780; ik_llama.cpp 67268c8fd, common/chat.cpp)."""


PATH_AS_TEXT = Rule(
    "LH216",
    "A path stands where a text is taken.",
    why="`--chat-template` takes the template itself, or the name of one that is built in.",
    example="""
    llama-server -m model.gguf -c 8192 --chat-template ./qwen.jinja
    """,
    language="sh",
    way_out="write `--chat-template-file`.",
)


def template(meant: Meant, _around: Around) -> Iterator[Clash]:
    """Paths and names where the text of a template is taken."""
    option = meant.get("--chat-template")
    if option is None or "{" in option.value:
        return
    value = option.value
    if value.endswith((".jinja", ".jinja2", ".j2", ".txt")) or value.startswith(("/", "./", "~")):
        message = f"{option} takes the path itself for the template"
        yield Clash(PATH_AS_TEXT, (option,), message, f"write `--chat-template-file {value}`")
    elif re.fullmatch(r"[\w.-]+", value):
        yield from _name(meant, option)


NO_TEMPLATE = Rule(
    "LH277",
    "A name stands for no chat template.",
    why="""
    With Jinja, which llama.cpp has switched on, `--chat-template` takes the text of a template, and one name:
    `chatml`. Any other word is the whole template: the model gets this word for every prompt. Without Jinja
    (`--no-jinja`, and ik_llama.cpp unless `--jinja` is given) about fifty names are known, and the server does
    not start with others.
    """,
    example="""
    llama-server -m model.gguf -c 8192 --chat-template chatlm
    """,
    language="sh",
    way_out="leave it out: models bring their own template. Or write `--chat-template-file`.",
)


def _name(meant: Meant, option: Option) -> Iterator[Clash]:
    """A word in place of a template. Builds of llama.cpp that are older than every catalogue had Jinja off."""
    jinja = meant.get("--jinja")
    on = jinja.on if jinja else meant.catalogue.kind == "llama.cpp" and meant.catalogue.exact
    named = option.value in BUILT_IN or option.value.startswith("mistral")
    if option.value == WITH_JINJA or (named and not on):
        return
    close = slip(option.value, (WITH_JINJA,) if on else BUILT_IN)
    way_out = f"did you mean `{close}`?" if close else "leave it out: the model brings its own"
    if named:
        way_out = "leave it out: the model brings its own; or add `--no-jinja`"
    message = f"{option} names no template that the engine knows"
    if on:
        message = f"with Jinja, {option} is the template itself, so that every prompt is `{option.value}`"
    yield Clash(NO_TEMPLATE, (option,), message, way_out)
