"""Declare the servers of a recipe on a rig, and compare the rendered servers with those of the recipe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from llamaherd.checks.command_line import WIRING
from llamaherd.engines import DIALECTS, EXPERTS, CommandLine, Server, listens_on
from llamaherd.engines.flags import Catalogue, Flag, check_arguments
from llamaherd.engines.flags.conflicts import SOURCES
from llamaherd.engines.flags.effective import OFF, EffectiveOptions, Option, effective_options
from llamaherd.engines.flags.environment import flag_of_variable
from llamaherd.engines.flags.keys import Keys, keys_from_arguments, managed_flags, slug, wired_flags, written_flags
from llamaherd.engines.flags.overrides import Override
from llamaherd.engines.flags.task import AUTOMATIC_SLOTS
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Card
from llamaherd.inventory.schema.key_flags import IK, LLAMA, VLLM, key_arguments, number
from llamaherd.memory.facts import RigFacts
from llamaherd.memory.instances import MOVING, experts_on_cpu, with_explicit_flags
from llamaherd.memory.placement import Placement
from llamaherd.plan.devices import server_environment
from llamaherd.recipes.recipe import VISIBLE, ServerCommand, visible_gpus
from llamaherd.recipes.servers import API_KEY_FLAGS, API_KEY_VARIABLES, PORTS, is_loopback
from llamaherd.recipes.suggestions import KEY_FILE, Offer, not_carried
from llamaherd.text.terminal import one_line

_ON_GPUS = ("on", "split", "tensor_split", "gpu_layers", "experts_on_cpu")
"""The keys that an instance on the CPU cannot have."""
PLACING = ("split", "tensor_split", "gpu_layers", "experts_on_cpu")
"""The keys by which a command places its model itself."""
_FITTING = ("--fit", "--fit-target", "--fit-ctx")
"""Flags by which llama.cpp places a model itself."""
_NO_KEY = (*SOURCES, "--hf-file", "--hf-repo-draft", "--mmproj", "--mmproj-url")
"""Flags for files that the store of a rig has elsewhere."""


def gpus_on_rig(offer: Offer, cards: Mapping[str, Card]) -> list[str]:
    """Return the GPUs of a rig for a server: those that its environment names, else the first ones."""
    wanted = len(cards) if offer.gpus is None else offer.gpus
    named = [each.strip() for each in offer.server.gpu_ids or visible_gpus(offer.server.settings) or ()]
    by_id = {gpu.uuid: name for name, gpu in cards.items() if gpu.uuid}
    by_id |= {str(at if gpu.index is None else gpu.index): name for at, (name, gpu) in enumerate(cards.items())}
    found = [by_id[each] for each in dict.fromkeys(named) if each in by_id]
    return found if len(found) == wanted else list(cards)[:wanted]


def keys_on_rig(offer: Offer, cards: Mapping[str, Card], flags: Catalogue | None, own: Keys) -> Keys:
    """Return the keys of an instance on a rig; `own` are those that the rig decides: engine, model, port."""
    keys = {key: value for key, value in offer.keys.items() if key != "on"} | own
    if on := gpus_on_rig(offer, cards):
        keys["on"] = on
    else:
        keys = {key: value for key, value in keys.items() if key not in _ON_GPUS}
    if offer.server.kind == VLLM:
        keys.setdefault("api_key", KEY_FILE)  # the network of its container may be reached from others
    if "$" in str(keys.get("api_key")):
        keys["api_key"] = KEY_FILE  # its folder is known while the server runs
    if len(keys.get("tensor_split", on)) != len(on):
        del keys["tensor_split"]
    if words := usable_arguments(keys.pop("extra_args", ()), flags, keys):
        keys["extra_args"] = words
    return keys


def usable_arguments(words: Sequence[str], flags: Catalogue | None, keys: Keys) -> list[str]:
    """Return the arguments without a key that this version of the engine takes, and that break nothing of the rig."""
    if flags is None:
        return list(words)
    refused = {at for each in _refused(words, flags, keys) for at in each}
    return [word for at, word in enumerate(words) if at not in refused]


def without_words(words: Sequence[str], flags: Catalogue, wrong: frozenset[int]) -> tuple[list[str], list[str]]:
    """Return arguments without the options that words at these indices belong to, and those options."""
    found = [each for each in effective_options(flags, words).said if wrong & {*_span(each)}]
    left_out = {at for each in found for at in _span(each)} | set(wrong)
    return [word for at, word in enumerate(words) if at not in left_out], [" ".join(each.words) for each in found]


def _span(option: Option) -> range:
    return range(option.index, option.index + len(option.words))


def _refused(words: Sequence[str], flags: Catalogue, keys: Keys) -> Iterator[range]:
    for problem in check_arguments(flags, words):
        if problem.severity == "error":
            yield range(problem.index, problem.index + problem.length)
    wired, carried = {**wired_flags(flags.kind), **WIRING}, managed_flags(flags.kind)
    for option in effective_options(flags, words).said:
        names = {*option.flag.spellings, *option.flag.negated}
        key = next((carried[name] for name in names if name in carried), None)
        fits = names & {*_FITTING} and option.value.lower() not in OFF
        if fits or names & {*wired, *_NO_KEY} or (key and key in keys):
            yield _span(option)


@dataclass(frozen=True)
class Rendered:
    """A server of the inventory as a host would start it. `cards` are all GPUs of its rig; `keyed`: it needs a key.

    `placement` is that of its model, None if it is unknown; then its header may be unknown, too.
    """

    flags: Catalogue
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    listen: str
    port: int
    gpus: tuple[str, ...]
    cards: int
    cpus: str | None
    keyed: bool
    header: Header | None
    placement: Placement | None


def rendered_server(facts: RigFacts, name: str) -> Rendered | None:
    """Return the server of an instance as its engine renders it; None for an engine without a catalogue of flags.

    Files have the names of their models as paths: neither the lock nor the store decides on anything else.
    """
    known, rig = facts.instances[name], facts.rig
    declared, engine = known.instance, rig.engines[known.instance.engine]
    if known.flags is None:
        return None
    try:
        pattern = experts_on_cpu(declared, known.header) if known.header else EXPERTS
    except ValueError:  # the model has no such experts: a check reports it
        pattern = EXPERTS
    moved = f"{pattern.removesuffix('=CPU')}=CPU" if pattern and declared.moves_experts else ""
    model, dialect = rig.models.get(declared.model), DIALECTS[engine.kind]
    source = Server(
        declared=declared,
        model_path=declared.model,
        threads=known.threads,
        listen=listens_on(engine, declared),
        overrides=(moved,) if moved else (),
        api_key_file="key" if declared.api_key else None,
        flags=known.flags,
        draft_path=declared.draft.model if declared.draft else None,
        mmproj_path=model.mmproj if model else None,
    )
    return Rendered(
        known.flags,
        key_arguments(engine.kind, source),
        {**dialect.variables(declared), **server_environment(rig, declared, None)},
        declared.listen,
        declared.port,
        declared.on,
        len(rig.gpus.cards) if rig.gpus else 0,
        declared.cpus,
        declared.api_key is not None,
        known.header,
        known.placement,
    )


def differences(offer: Offer, ours: Rendered, refused: Mapping[str, str] = MappingProxyType({})) -> tuple[str, ...]:
    """Return what differs between a server of the inventory and that of a recipe, and why, a line each.

    `refused` are the reasons why arguments without a key were left out, by the arguments.
    """
    return tuple(dict.fromkeys(one_line(each) for each in _Comparison(offer, ours, refused).lines()))


_SET = {
    "engine": "llamaherd sets it for every server",
    "gpu_layers": "the plan places the model",
    "parallel": "the engine would choose the slots",
    "threads": "the engine would count the cores itself",
    "context": "the engine would take what the model was trained for, or what fits",
    "model": "clients request the model by this name",
    "experts_on_cpu": "the plan places the model",
    "flash_attention": "the cache needs it",
}
"""Why llamaherd sets a flag that a recipe leaves to the engine, by its key."""
_DEFAULTS = {
    LLAMA: {"kv": {"f16"}, "flash_attention": {"auto"}, "split": {"layer"}},
    IK: {"kv": {"f16"}, "flash_attention": {"on"}, "split": {"layer"}},
    VLLM: {"split": {"layer"}},
}
"""Values by key that each engine takes by itself (llama.cpp b11434, common/common.h; ik_llama.cpp 67268c8fd)."""


@dataclass(frozen=True)
class _Comparison:
    offer: Offer
    ours: Rendered
    refused: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """Yield a line for each difference."""
        yield from self._engine()
        yield from self._endpoint()
        yield from self._devices()
        yield from self._arguments()
        yield from self._environment()
        yield from self._around()

    @property
    def _server(self) -> ServerCommand:
        return self.offer.server

    def _engine(self) -> Iterator[str]:
        version = self._server.version
        if version and version.removeprefix("v") not in (self.ours.flags.version, self.ours.flags.requested):
            yield f"the engine is {self.ours.flags}: the file names {version}"

    def _endpoint(self) -> Iterator[str]:
        listen, port = self._address
        if listen is not None and not _same_address(listen, self.ours.listen):
            yield f"it listens on {self.ours.listen}: the file has {listen}"
        if port and port != str(self.ours.port):
            yield f"its port is {self.ours.port}: the file has {port}"
        keyed = bool(self._server.has(*API_KEY_FLAGS) or API_KEY_VARIABLES & {*self._server.settings})
        if self.ours.keyed and not keyed:
            yield "clients need the key of `api_key`: other machines may reach the server"

    @property
    def _address(self) -> tuple[str | None, str]:
        """The address and port on the host; None and empty where the file does not decide on them."""
        server = self._server
        if server.published:
            unknown = server.published.unknown
            return None if unknown else server.published.address or "0.0.0.0", server.published.host
        host, port = server.value("--host"), server.value("--port")
        if server.served_as:
            return None, ""  # clients reach the router or llama-swap
        usual = "0.0.0.0" if server.kind == VLLM or server.contained else "127.0.0.1"
        listen = None if host and host.unknown else str(host) if host else usual
        return listen, "" if port and port.unknown else str(port or PORTS.get(server.program, "8080"))

    def _devices(self) -> Iterator[str]:
        wanted, there = self.offer.gpus, len(self.ours.gpus)
        if wanted is None and there != self.ours.cards:
            yield f"it runs on {_gpus(there)}: the file takes all that there are"
        elif wanted is not None and wanted != there:
            yield f"it runs on {_gpus(there)}: the file takes {wanted}"

    @cached_property
    def _theirs(self) -> EffectiveOptions:
        known = {name: str(word) for name, word in self._server.settings.items() if not word.unknown}
        return effective_options(self.ours.flags, self.offer.known.arguments, known)

    @cached_property
    def _mine(self) -> EffectiveOptions:
        return effective_options(self.ours.flags, self.ours.arguments, self.ours.environment)

    @cached_property
    def _their_keys(self) -> Keys:
        return keys_from_arguments(self.offer.known.arguments, self.ours.flags.kind).keys

    @cached_property
    def _our_keys(self) -> Keys:
        return keys_from_arguments(self.ours.arguments, self.ours.flags.kind).keys

    @cached_property
    def _key_of(self) -> Mapping[Flag, str]:
        written = written_flags(self.ours.flags.kind).items()
        pairs = [(flag, key) for name, key in written if (flag := self.ours.flags.find(name))]
        return dict(reversed(pairs))  # of two keys of one flag, the first counts

    @cached_property
    def _apart(self) -> frozenset[Flag]:
        """The flags of address, key, GPUs and the model's place, which are compared by themselves."""
        others = ("--hf-file", "--host", "--port", "--uds", "--device", "--tensor-parallel-size")
        names = (*SOURCES, *API_KEY_FLAGS, *others)
        return frozenset(flag for name in names if (flag := self.ours.flags.find(name)))

    @cached_property
    def _moving(self) -> frozenset[Flag]:
        return frozenset(flag for name in MOVING if (flag := self.ours.flags.find(name)))

    def _arguments(self) -> Iterator[str]:
        yield from self._unknown_words()
        yield from self._experts()
        for theirs in _last(self._theirs):
            if self._is_apart(theirs.flag) or self._is_same(theirs):
                continue
            if ours := self._mine.get(theirs.flag.spellings[0]):
                yield f"{ours} in place of {theirs}"
            else:
                yield f"{theirs} is not used{self._why_not(theirs)}"
        for ours in _last(self._mine):
            if not self._is_apart(ours.flag) and self._theirs.get(ours.flag.spellings[0]) is None:
                yield from self._set(ours)

    def _is_apart(self, flag: Flag) -> bool:
        return flag in self._apart or flag in self._moving

    def _is_same(self, theirs: Option) -> bool:
        """Return whether an option has the same meaning here, perhaps by another spelling of its key."""
        name, key = theirs.flag.spellings[0], self._key_of.get(theirs.flag)
        mine, given = self._mine.every(name), self._theirs.every(name)
        if theirs.flag.repeats:
            return [*map(_meaning, mine)] == [*map(_meaning, given)]
        if mine and _meaning(mine[-1]) == _meaning(theirs):
            return True
        if key == "engine" and theirs.on:
            return True  # the engine's default, or what every server gets
        return key in self._their_keys and self._their_keys[key] == self._our_keys.get(key)

    def _why_not(self, theirs: Option) -> str:
        names = {*theirs.flag.spellings}
        if why := self.refused.get(" ".join(theirs.words)):
            return f": {why}"
        if names & {*_FITTING}:
            return ": the plan places the model"
        if "--mmproj" in names:
            return ": `mmproj` of the model names a projector of its repository"
        reasons = {**wired_flags(self.ours.flags.kind), **WIRING}
        why = next((reasons[name] for name in theirs.flag.spellings if name in reasons), "")
        return f": {why}" if why else ""

    def _set(self, ours: Option) -> Iterator[str]:
        """Yield what llamaherd sets and the file leaves to the engine."""
        key = self._key_of.get(ours.flag)
        same = key is not None and key in self._their_keys and self._their_keys[key] == self._our_keys.get(key)
        usual = ours.value in _DEFAULTS[self.ours.flags.kind].get(key or "", ())
        named = key == "model" and slug(self._server.served_as) == ours.value
        if same or usual or named or (key == "idle" and self._server.unload_after):
            return
        why = _SET.get(key or "", "llamaherd sets it for every server" if ours.origin == "environment" else "")
        if key == "parallel" and self.ours.flags.kind == LLAMA:
            why = f"llama.cpp would have {AUTOMATIC_SLOTS} slots, which share the context"
        yield f"{ours} is set{f': {why}' if why else ''}"

    def _unknown_words(self) -> Iterator[str]:
        """Yield the arguments that this version of the engine does not have."""
        taken = {at for each in self._theirs.said if each.origin == "argument" for at in _span(each)}
        words = self.offer.known.arguments
        if words[:1] == (self.offer.source,):
            taken.add(0)  # as `vllm serve` takes the model
        if left := [word for at, word in enumerate(words) if at not in taken]:
            yield f"`{' '.join(left)}` is not used: {self.ours.flags} does not have it"

    def _experts(self) -> Iterator[str]:
        given = [each for each in self._theirs.said if each.flag in self._moving]
        mine = [each for each in self._mine.said if each.flag in self._moving]
        if [*map(_meaning, given)] == [*map(_meaning, mine)]:
            return
        where, here = self._moved(self._theirs), self._moved(self._mine)
        if where is not None and where == here:
            return
        shown = " ".join(map(str, given)) or "the engine's own placement"
        if self.ours.header is None:
            yield f"what {shown} moves is not compared: the model's header is unknown"
        elif where is None or here is None:
            yield f"what {shown} moves is not compared: it cannot be derived"
        else:
            moved = sorted(name for name in {*where, *here} if where.get(name) != here.get(name))
            yield f"{len(moved)} tensors are elsewhere than by {shown}, such as `{moved[0]}`"

    def _moved(self, options: EffectiveOptions) -> Mapping[str, Any] | None:
        """Return the tensors that options keep elsewhere, with their places; None if that cannot be derived."""
        if self.ours.header is None or self.ours.placement is None:
            return None
        bare = replace(self.ours.placement, overrides=(), draft_overrides=())
        try:
            placed = with_explicit_flags(bare, CommandLine(options, keys=0), self.ours.header)
        except ValueError:
            return None
        patterns = [(Override(pattern, "").regex, device) for pattern, device in placed.overrides]
        found: dict[str, Any] = {}
        for tensor in self.ours.header.each:
            for regex, device in patterns:
                if regex and regex.search(tensor.name):
                    found[tensor.name] = device
                    break
        return found

    def _environment(self) -> Iterator[str]:
        compared = (*API_KEY_VARIABLES, *VISIBLE, "CUDA_DEVICE_ORDER")
        unset = [
            name
            for name, word in self._server.settings.items()
            if name not in compared
            and (word.unknown or self.ours.environment.get(name) != str(word))
            and (word.unknown or flag_of_variable(self.ours.flags, name) is None)
        ]
        if unset:
            yield f"variables of the file are not set: {', '.join(f'`{name}`' for name in unset)}"
        for name in self.ours.environment:
            is_compared = name.startswith("CUDA_") or flag_of_variable(self.ours.flags, name)
            if not is_compared and name not in self._server.settings:
                yield f"the variable `{name}` is set: llamaherd sets it for such servers"

    def _around(self) -> Iterator[str]:
        """Yield what surrounds the command: processors, folders, and what could not be read."""
        server = self._server
        if server.cpus and self.ours.cpus is None:
            yield f"the processors `{server.cpus}` are not set: `cpus` takes numbers and ranges"
        elif self.ours.cpus and self.ours.cpus != server.cpus:
            yield f"it may use the processors `{self.ours.cpus}`: the file has {server.cpus or 'no such limit'}"
        yield from not_carried(server, self.offer.keys, self.offer.known, f"{self.ours.flags} does not take it")
        for source, target in server.binds:
            if not PurePosixPath(self.offer.source).is_relative_to(target) and not _is_cache(target):
                yield f"`{source}` is not mounted: a server gets the folders of its models alone"


def _is_cache(target: str) -> bool:
    """Return whether a path in a container is a cache of models: the store of the rig replaces it."""
    return re.search(r"/(?:huggingface|\.cache|models)\b", target) is not None


def _gpus(count: int) -> str:
    return "the CPU" if not count else f"{count} GPU{'s' * (count > 1)}"


def _same_address(one: str, other: str) -> bool:
    return one == other or (is_loopback(one) and not one.endswith(".sock") and is_loopback(other))


def _last(options: EffectiveOptions) -> list[Option]:
    """Return the options that take effect, one for each flag."""
    return list({id(each.flag): each for each in options.said}.values())


def _meaning(option: Option) -> tuple[bool, tuple[object, ...]]:
    """Return what an option sets, with numbers as numbers, and files by their names."""
    values = (slug(PurePosixPath(each).name) if each.endswith(".gguf") else number(each) for each in option.values)
    return option.on, tuple(values)
