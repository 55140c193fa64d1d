"""The gateway's lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llamaherd.plan import Estimate, GatewayModel, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """Where it is reached, what is behind each name, and who may use it."""
    if plan.gateway is None:
        return
    made = plan.gateway
    scheme = "https" if made.secure else "http"
    yield f"  gateway    {scheme} on {made.listen}:{made.port}, {made.length} wait for each model, up to {made.wait} s"
    if made.authority:
        yield f"             certificate of the CA in {made.authority}, for {', '.join(made.names)}"
    yield from (f"             {_model(model)}" for model in made.models)
    for user in made.users:
        yield f"             user {user.name}: {user.streams} at once, {', '.join(user.models)}"


def _model(model: GatewayModel) -> str:
    servers = ", ".join(f"{each.name} ({each.address}:{each.port}, {each.streams} at once)" for each in model.servers)
    also = f", also {', '.join(model.aliases)}" if model.aliases else ""
    falls = f", else {model.fallback}" if model.fallback else ""
    return f"{model.name}{also}: {servers}{falls}"
