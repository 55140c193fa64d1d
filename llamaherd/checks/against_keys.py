"""What an instance's arguments and variables say against its keys, or against what llamaherd wires up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llamaherd.checks.whole import Whole
from llamaherd.checks.written import as_keys
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import has_own_network
from llamaherd.engines.flags.access import is_keyed, is_local
from llamaherd.engines.flags.advice import OPEN
from llamaherd.engines.flags.clash import Around
from llamaherd.engines.flags.meant import Option

WIRING: Mapping[str, str] = {
    "--model": "the model is what `model` names",
    "--model-url": "the model is what `model` names",
    "--hf-repo": "the model is what `model` names",
    "--hf-file": "the model is what `model` names",
    "--docker-repo": "the model is what `model` names",
    "--alias": "clients ask for the model by the name in `model`",
    "--served-model-name": "clients ask for the model by the name in `model`",
    "--host": "where it listens is what `listen` says",
    "--port": "the port is what `port` says",
    "--uds": "where it listens is what `listen` says",
    "--device": "the GPUs are those in `on`",
    "--api-key": "the key is where `api_key` says",
    "--api-key-file": "the key is where `api_key` says",
    "--api-prefix": "llamaherd asks for its health without a prefix",
    "--ssl-key-file": "llamaherd asks for its health by plain HTTP",
    "--ssl-cert-file": "llamaherd asks for its health by plain HTTP",
    "--ssl-keyfile": "llamaherd asks for its health by plain HTTP",
    "--ssl-certfile": "llamaherd asks for its health by plain HTTP",
    "--root-path": "llamaherd asks for its health without a prefix",
    "--mlock": "without the key `mlock` the unit may lock no memory",
}
"""What an argument of one's own breaks, whether the key is there or not: the rig says it by other means."""
VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "on",
    "NVIDIA_VISIBLE_DEVICES": "on",
    "CUDA_DEVICE_ORDER": "on",
    "GGML_CUDA_DEVICES": "on",
}
"""Variables that decide what a key says."""
OUR_VARIABLES: Mapping[str, str] = {
    "LLAMAHERD_SPEC": "by it a run knows what the server was started as, and would start it anew each time",
    "XDG_CONFIG_HOME": "there the engine would look for a configuration that no rule has read",
}
"""Variables that llamaherd sets itself, and what another value breaks."""


def opened(each: Whole) -> Iterator[Finding]:
    """A listener beyond the host's own addresses that no key opens: LH022 says so of `listen`."""
    host = each.told.get("--host")
    engine = each.subject.rig.engines[each.instance.engine]
    if host is None or each.key(host) or is_local(host.value) or has_own_network(engine, each.instance):
        return
    if not is_keyed(each.told, Around(keyed=each.instance.api_key is not None)):
        message = f"{host} lets every network reach the server, and no key is asked for"
        key = f"`api_key: {{file: keys/{each.name}}}`"
        help_ = f"write `listen: {host.value}` with {key}, or leave it out to stay on loopback"
        yield OPEN.at(each.place(host), message, help_)


OVERRIDES = Rule(
    "LH210",
    "An argument or a variable says something else than the rig does.",
    why="""
    llamaherd checks, sizes, watches and asks what the rig says by keys. An argument that beats a key makes all of
    that untrue. A variable that an argument beats does nothing.
    """,
    example="""
    instances:
      coder: {extra_args: [--port, "9000"]}
    """,
    way_out="write the key of the help line, or leave it out.",
)


def contradicted(each: Whole) -> Iterator[Finding]:
    """What says something else than a key does, or breaks what llamaherd wires up."""
    by_key = {option.flag: option for option in each.told.said if each.key(option)}
    for option in each.told.said:
        if each.key(option) or not option.on:
            continue
        ours, key = by_key.get(option.flag), each.keys_of.get(option.flag)
        reason = next((why for name, why in WIRING.items() if each.told.catalogue.find(name) == option.flag), None)
        if option.origin == "environment" and each.told.catalogue.env == "above":
            continue  # a variable that beats the command line is an error by itself
        if option.origin == "environment" and ours:
            message = f"{option} does nothing: llamaherd passes `{' '.join(ours.words)}`, which beats it"
            yield OVERRIDES.at(each.place(option), message, _instead(each, option, key))
        elif (ours and ours.values == option.values) or _is_open(each, option):
            continue
        elif reason or (key in each.instance.model_fields_set and (ours or key == "experts_on_cpu")):
            beside = f"`{key}`" if ours else "the rig"
            message = f"{option} says something else than {beside} does" + (f": {reason}" if reason else "")
            yield OVERRIDES.at(each.place(option), message, _instead(each, option, key))


def _instead(each: Whole, option: Option, key: str | None) -> str:
    """The key that says it, with the value where it can be told."""
    if option.origin == "argument" and (written := as_keys(option.words)):
        if written == f"`{key}: {getattr(each.instance, key or '', None)}`":
            return f"leave it out: {written} says it"
        return f"write {written} as a key of the instance"
    return f"leave it out; `{key}` is the key that says it" if key else "leave it out"


def _is_open(each: Whole, option: Option) -> bool:
    """Whether it is said already that it opens the server."""
    return option == each.told.get("--host") and any(True for _ in opened(each))


def own_variables(each: Whole) -> Iterator[Finding]:
    """GPUs chosen behind the rig's back, and what servers are told by us."""
    for name, why in OUR_VARIABLES.items():
        if name in each.instance.environment:
            place = each.subject.document.key(("instances", each.name, "environment", name))
            yield OVERRIDES.at(place, f"llamaherd sets `{name}` itself: {why}", "leave it out")
    for name, key in VARIABLES.items():
        value = each.instance.environment.get(name)
        if value is None or (name, value) == ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"):
            continue
        place = each.subject.document.key(("instances", each.name, "environment", name))
        message = f"`{name}={value}` chooses other GPUs than `{key}` does, behind the rig's back"
        yield OVERRIDES.at(place, message, f"leave it out, and name the GPUs in `{key}`")
