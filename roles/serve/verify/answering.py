"""Whether an instance answers as declared: where it listens, what it serves, and how a chat with it went."""

from __future__ import annotations

import ipaddress
import re

from llamaherd.host.answers import Chat, Reply, mapping, objects
from llamaherd.inventory.schema import Instance
from llamaherd.plan import InstancePlan
from llamaherd.plan.speed import OF_EXPECTED
from llamaherd.role.report import Check

_SOCKET = re.compile(r"([0-9A-Fa-f]{8}|[0-9A-Fa-f]{32}):([0-9A-Fa-f]{1,4})")
_FOREIGN_MARKERS = ("<|im_start|>", "<|im_end|>")
"""Of the chat template that a server falls back to. A model that knows them ends there, and does not spell them."""


def listening(planned: InstancePlan, text: str) -> Check:
    """On the declared address, and on no other."""
    found = {address for address, port in filter(None, map(_socket, text.split())) if port == planned.endpoint.port}
    right = found == {planned.endpoint.listen}
    where = " and ".join(sorted(found)) or "nowhere"
    detail = f"port {planned.endpoint.port} on {where}" + ("" if right else f", declared is {planned.endpoint.listen}")
    return Check("listens", right, detail)


def _socket(text: str) -> tuple[str, int] | None:
    """Address and port of a line of /proc/net/tcp: 32-bit words in the byte order of x86 and ARM; None of no such."""
    found = _SOCKET.fullmatch(text)
    if not found:
        return None
    words = [bytes.fromhex(found[1][at : at + 8])[::-1] for at in range(0, len(found[1]), 8)]
    return str(ipaddress.ip_address(b"".join(words))), int(found[2], 16)


def health(planned: InstancePlan, health: Reply) -> Check:
    if planned.endpoint.health_status is None:
        return Check("health", health.status == 200, "answers" if health.status == 200 else health.problem)
    found = health.problem or f"status is `{health.json.get('status')}`"
    return Check("health", not health.problem and health.json.get("status") == planned.endpoint.health_status, found)


def locked(keyless: Reply) -> Check:
    """A key that is declared but not asked for protects nothing."""
    if keyless.status == 200:
        return Check("key", False, "it answers without the API key that is declared")
    return Check("key", keyless.status == 401, "asked for" if keyless.status == 401 else keyless.problem)


def serves(declared: Instance, planned: InstancePlan, models: Reply, props: Reply) -> tuple[Check, Check]:
    """The model and its context; an engine that tells nothing else has both in its list of models."""
    if planned.endpoint.props_path:
        return _model(planned, models, props), context(declared, props)
    if models.problem:
        return Check("model", False, models.problem), Check("context", False, models.problem)
    served = {str(model.get("id")): model.get("max_model_len") for model in objects(models.json.get("data"))}
    names, found = ", ".join(served) or "none", served.get(planned.model)
    right = list(served) == [planned.model]
    return (
        Check("model", right, names if right else f"{names}; declared is {planned.model}"),
        Check("context", found == declared.context, f"{found} tokens, declared are {declared.context}"),
    )


def _model(planned: InstancePlan, models: Reply, props: Reply) -> Check:
    """The declared model answers: by the name that clients use, and by the file that is loaded."""
    if problem := models.problem or props.problem:
        return Check("model", False, problem)
    names = [str(model.get("id")) for model in objects(models.json.get("data"))]
    path = props.json.get("model_path")
    right = names == [planned.model] and path == planned.model_path
    found = f"{', '.join(names) or 'none'} from {path}"
    return Check("model", right, found if right else f"{found}; declared is {planned.model} from {planned.model_path}")


def context(declared: Instance, props: Reply) -> Check:
    """Slots share the declared context unless they have one cache together; engines round up to 256 cells."""
    if props.problem:
        return Check("context", False, props.problem)
    found, slots = mapping(props.json.get("default_generation_settings")).get("n_ctx"), props.json.get("total_slots")
    unified = {"--kv-unified", "-kvu"} & set(declared.extra_args)
    share = declared.context if unified else declared.context // declared.parallel
    right = isinstance(found, int) and share <= found < share + 256 and slots == declared.parallel
    detail = f"{slots} slot(s) of {found} tokens"
    return Check("context", right, detail if right else f"{detail}, declared is {declared.parallel} of {share}")


def streams(streamed: Reply, said: Chat) -> Check:
    if streamed.problem:
        return Check("chat", False, streamed.problem)
    if said.chunks < 2 or not said.answer:
        return Check("chat", False, f"the answer does not stream: {said.chunks} pieces with text")
    speed = f", {said.tokens_per_second:.1f} tokens/s" if said.tokens_per_second else ""
    # As declared, so that nothing failed; but hardly as meant.
    doubt = any(marker in said.answer for marker in _FOREIGN_MARKERS)
    note = "; it spells out chat markers: this model needs a `--chat-template` in `extra_args`" if doubt else ""
    return Check("chat", True, f"streams in {said.chunks} pieces{speed}{note}")


def drafts(streamed: Reply, said: Chat) -> Check:
    if streamed.problem:
        return Check("drafts", False, streamed.problem)
    if not said.draft_n:
        return Check("drafts", False, "no token was drafted, though `draft` is declared")
    return Check("drafts", True, f"{said.draft_accepted} of {said.draft_n} drafted tokens accepted")


def fast(expected: float, said: Chat) -> Check:
    """As fast as it must be at least, by what its owner expects."""
    if not said.tokens_per_second:
        return Check("speed", False, f"it tells no speed; expected are {expected:g} tokens/s")
    detail = f"{said.tokens_per_second:.1f} tokens/s, expected are {expected:g}"
    return Check("speed", said.tokens_per_second >= expected * OF_EXPECTED, detail)
