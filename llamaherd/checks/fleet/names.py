"""Names in a fleet's file that stand for nothing, or for two things."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.fleet.context import FleetContext
from llamaherd.diagnostics.findings import Finding, nearest
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.served import rig_of, split_served

UNKNOWN_GATEWAY_RIG = Rule(
    "LH300",
    "The gateway is to run on a rig that is not in the inventory.",
    why="`gateway.on` names rigs of the same folder.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:2:8: error LH300: `on` names rig `atic`, which is none of this fleet
      help: did you mean `attic`?
    """,
    language="console",
    way_out="correct the name: it is what `rig:` says in that rig's file.",
)


def gateway_rigs(subject: FleetContext) -> Iterator[Finding]:
    """Rigs that are none of the fleet."""
    for gateway in subject.gateways:
        for index, name in enumerate(gateway.on):
            if name not in subject.names:
                message = f"`on` names rig `{name}`, which is none of this fleet"
                yield UNKNOWN_GATEWAY_RIG.at(subject.value("on", index), message, nearest(name, subject.names))


UNKNOWN_SERVER = Rule(
    "LH301",
    "A model of the gateway names a server that no rig declares.",
    why="`serve` names instances as `RIG.INSTANCE`.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:6:21: error LH301: `serve` names `attic.codr`, which no rig declares
      help: did you mean `attic.coder`?
    """,
    language="console",
    way_out="correct the name, or declare the instance in the rig's file.",
)


def known_servers(subject: FleetContext) -> Iterator[Finding]:
    """Servers that are not there. Those of a rig that cannot be read may be."""
    readable = {f"{rig}.{name}" for rig, each in subject.rigs.items() for name in each.instances}
    unread = [name for name in subject.names if name not in subject.rigs]
    for model, each in subject.models:
        for index, named in enumerate(each.serve):
            if split_served(named, subject.rigs) is None and rig_of(named, unread) is None:
                message = f"`serve` names `{named}`, which no rig declares"
                yield UNKNOWN_SERVER.at(
                    subject.value("models", model, "serve", index), message, nearest(named, readable)
                )


SAME_MODEL_NAME = Rule(
    "LH302",
    "Two models of the gateway have one name.",
    why="An alias is the name of another model, or another one's alias: a request could mean either.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:9:17: error LH302: `gpt-4o` is a name of model `coder` already
      help: leave it out of one of the two
    """,
    language="console",
    way_out="leave the alias out of one of the two.",
)


def names_once(subject: FleetContext) -> Iterator[Finding]:
    """Names that mean two models."""
    taken = {name: name for name, _ in subject.models}
    for model, each in subject.models:
        for index, alias in enumerate(each.aliases):
            if alias in taken:
                message = f"`{alias}` is a name of model `{taken[alias]}` already"
                place = subject.value("models", model, "aliases", index)
                yield SAME_MODEL_NAME.at(place, message, "leave it out of one of the two")
            taken.setdefault(alias, model)


WRONG_FALLBACK = Rule(
    "LH303",
    "A fallback is no model, or leads back to where it began.",
    why="""
    The fallback answers while no server of a model does. In a circle nobody would be left. It is named by the model's
    own name, not by an alias.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:7:17: error LH303: the fallback of `coder` leads back to it: coder, small, coder
      help: leave `fallback` out in one of them
    """,
    language="console",
    way_out="name a model of the gateway, and let the last one have no fallback.",
)


def fallbacks(subject: FleetContext) -> Iterator[Finding]:
    """Fallbacks that are none."""
    models = dict(subject.models)
    for model, each in models.items():
        if each.fallback is None:
            continue
        place = subject.value("models", model, "fallback")
        if each.fallback not in models:
            message = f"the fallback of `{model}` is `{each.fallback}`, which is no model of the gateway"
            yield WRONG_FALLBACK.at(place, message, nearest(each.fallback, models))
            continue
        chain = [model]
        following: str | None = each.fallback
        while following in models and following not in chain:
            chain.append(following)
            following = models[following].fallback
        if following == model:
            message = f"the fallback of `{model}` leads back to it: {', '.join([*chain, model])}"
            yield WRONG_FALLBACK.at(place, message, "leave `fallback` out in one of them")


UNKNOWN_USERS_MODEL = Rule(
    "LH304",
    "A user may use a model that the gateway does not have.",
    why="`models` of a user names models of the gateway by their own names, not by aliases.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:5:44: error LH304: user `tom` may use `codr`, which is no model of the gateway
      help: did you mean `coder`?
    """,
    language="console",
    way_out="correct the name, or leave `models` out: then the user may use all.",
)


def users_models(subject: FleetContext) -> Iterator[Finding]:
    """Models of users that are none."""
    for gateway in subject.gateways:
        for user, each in gateway.users.items():
            for index, model in enumerate(each.models):
                if model not in gateway.models:
                    message = f"user `{user}` may use `{model}`, which is no model of the gateway"
                    place = subject.value("users", user, "models", index)
                    yield UNKNOWN_USERS_MODEL.at(place, message, nearest(model, gateway.models))


SAME_KEY = Rule(
    "LH305",
    "Two users have one key.",
    why="""
    A key says who asks. With the same one nobody can tell them apart, and it cannot be taken from one alone. Keys that
    lie in different places are compared when they are sent; no key is ever shown.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:6:11: error LH305: users `ann` and `tom` have the same key
      help: give each a key of their own: `herd users rotate ann`
    """,
    language="console",
    way_out="give each a key of their own: `herd users rotate NAME` makes one.",
)


def one_key_each(subject: FleetContext) -> Iterator[Finding]:
    """Users whose keys lie in one place."""
    for gateway in subject.gateways:
        owners: dict[object, str] = {}
        for user, each in gateway.users.items():
            owner = owners.setdefault((each.key.file, each.key.env), user)
            if owner != user:
                message = f"users `{user}` and `{owner}` have the same key"
                help_ = f"give each a key of their own: `herd users rotate {user}`"
                yield SAME_KEY.at(subject.value("users", user, "key"), message, help_)
