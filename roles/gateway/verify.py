"""Verify the gateway with curl on its host, as a client would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.responses import ProbeOutputs
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.authority import root_in
from llamaherd.inventory.schema import Task
from llamaherd.layout import GATEWAY, GATEWAY_UNIT, GATEWAY_USER, PAUSED, service_of
from llamaherd.onhost.document import Secret
from llamaherd.onhost.verification import Probe
from llamaherd.plan import GatewayModel, GatewayPlan, Plan
from llamaherd.plan.instance import Endpoint, task_path
from llamaherd.role.report import CHAT_SECONDS, PROMPT, Check, service_check
from llamaherd.role.role import Judging, Verified

# $1 is the URL; the root certificate comes on stdin.
_TRUSTED = """\
root=$(mktemp) && cat >"$root"
why=$(curl -q -sS --noproxy '*' --max-time 5 --cacert "$root" -o /dev/null "$1" 2>&1)
printf '%s %s\\n' "$?" "$why"
rm -f "$root"
"""


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield requests without a key, with a wrong key, and as a user, whose key travels on stdin."""
    if plan.gateway is None:
        return
    made = plan.gateway
    endpoint = Endpoint(listen=made.listen, port=made.port, models=(), streams=1)
    url = endpoint.url().replace("http:", "https:") if made.secure else endpoint.url()
    keys = {model.name: key for model in made.models if (key := _key_for(made, model.name))}
    unit = ("systemctl", "show", "-p", "ActiveState", "-p", "UnitFileState", GATEWAY_UNIT)
    yield Probe("gateway unit", "", unit, errors=True)
    yield Probe("gateway files", "", ("find", str(GATEWAY), "-maxdepth", "1", "-printf", r"%m %u %p\n"))
    if root := _root(made):
        trusted = ("sh", "-c", _TRUSTED, "sh", f"{url}/healthz")
        yield Probe("gateway certificate", "", trusted, stdin=Secret(root))
    yield _request("gateway keyless", "", f"{url}/v1/models", "")
    yield _request("gateway wrong", "", f"{url}/v1/models", "llamaherd-wrong-key")
    if keys:
        yield _request("gateway elsewhere", "", f"{url}/slots", next(iter(keys.values())))
    # Servers of this rig that are paused: their models have no other server, it may be.
    yield Probe("gateway paused", "", ("ls", "-1", str(PAUSED)))
    for model in made.models:
        if key := keys.get(model.name):
            path = task_path(endpoint, model.task)
            yield _request("gateway model", model.name, f"{url}{path}", key, _body(model), CHAT_SECONDS)


def _request(what: str, of: str, url: str, key: str, body: str = "", seconds: int = 5) -> Probe:
    """Return one request, which prints the headers of its response. Its own headers come on stdin."""
    limits = ("curl", "-q", "-s", "-k", "--noproxy", "*", "--max-time", str(seconds))
    posted = ("-H", "Content-Type: application/json", "-d", body) if body else ()
    header = Secret(f"Authorization: Bearer {key}\n" if key else "")
    argv = (*limits, "-H", "@-", "-o", "/dev/null", "-D", "-", *posted, url)
    return Probe(what, of, argv, stdin=header, seconds=seconds + 5, errors=True)


def _root(made: GatewayPlan) -> str | None:
    """Return the root certificate for clients; None if it is not ours, or not on this machine."""
    if made.authority is not None:
        with suppress(UserError):
            return root_in(made.authority).pem
    return None


def _key_for(made: GatewayPlan, model: str) -> str | None:
    """Return the key of a user of a model; None without a user, or if the key is not on this machine."""
    user = made.may_use(model)
    if user is not None:
        with suppress(UnreadableKeyError):
            return read_key(user.key)
    return None


def _body(model: GatewayModel) -> str:
    """Return the body of a request that a model's servers are for."""
    bodies: dict[Task, dict[str, object]] = {
        "chat": {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1},
        "embeddings": {"input": PROMPT},
        "rerank": {"query": PROMPT, "documents": [PROMPT]},
    }
    return json.dumps({**bodies[model.task], "model": model.name})


def judge(judging: Judging) -> Verified:
    """Return the checks of the gateway."""
    made = judging.plan.gateway
    return Verified(checks=tuple(gateway_checks(made, judging.answers, judging.rig.rig))) if made else Verified()


def gateway_checks(made: GatewayPlan, answers: ProbeOutputs, rig: str) -> Iterator[Check]:
    """Yield checks of the unit, its files' access, refused requests, and each model's response."""
    stopped = frozenset(answers.get(("gateway paused", ""), "").split())
    yield service_check("gateway", answers.get(("gateway unit", ""), ""), GATEWAY_UNIT)
    owners = answers.get(("gateway files", ""), "")
    wrong = [line for line in owners.split("\n") if line and not line.startswith((f"600 {GATEWAY_USER}", "700 "))]
    detail = f"others may read {wrong[0]}: `herd up` mends that" if wrong else "its user alone reads keys and hashes"
    yield Check("gateway files", bool(owners) and not wrong, detail if owners else "there are none: `herd up`")
    yield from _certificate(answers.get(("gateway certificate", "")))
    for what, section, status in (
        ("gateway without a key", "keyless", "401"),
        ("gateway with a wrong key", "wrong", "401"),
        ("gateway, other paths", "elsewhere", "404"),
    ):
        if section == "elsewhere" and ("gateway elsewhere", "") not in answers:
            continue  # only somebody with a key is told that there is nothing
        found = _status(answers.get((f"gateway {section}", ""), ""))
        yield Check(
            what, found == status, f"HTTP {found or 'no answer'}" + ("" if found == status else f", not {status}")
        )
    for model in made.models:
        own = {each.name for each in model.servers if service_of(each.name.removeprefix(f"{rig}.")) in stopped}
        paused = bool(own) and own == {each.name for each in model.servers}
        yield _answers(model, answers.get(("gateway model", model.name)), paused=paused)


def _certificate(output: str | None) -> Iterator[Check]:
    """Yield whether a client that trusts the CA can connect, by curl's exit status and message."""
    if output is None:
        return
    status, _, why = output.partition(" ")
    detail = "is of the CA that clients trust, and holds today"
    yield Check("gateway certificate", status == "0", detail if status == "0" else why or "no answer")


def _answers(model: GatewayModel, output: str | None, *, paused: bool) -> Check:
    """Return whether a model responds through the gateway, and which server did. `paused`: all its servers are."""
    name = f"gateway model {model.name}"
    if output is None:
        return Check(name, True, "not queried: no user's key for it is on this machine", doubt=True)
    status, headers = _status(output), _headers(output)
    server, fallback = headers.get("x-herd-instance"), headers.get("x-herd-fallback")
    if paused and (fallback or status != "200"):
        instead = f"{fallback} responds in its place" if fallback else "requests fail until then"
        return Check(name, True, f"all its servers are paused; {instead}", doubt=True)
    if fallback:
        return Check(name, False, f"none of its servers responds; {fallback} does in its place")
    if status == "200" and server in {each.name for each in model.servers}:
        return Check(name, True, f"responds, by {server}")
    if status in ("400", "501") and server:
        return Check(name, True, f"{server} returns HTTP {status} to a chat: it may serve other requests")
    if status == "429":
        return Check(name, True, "all its servers are at work", doubt=True)
    return Check(name, False, f"HTTP {status or 'no answer'} to a chat: no server responds, or they refuse the gateway")


def _status(output: str) -> str:
    """Return the status of a response with these headers."""
    words = output.partition("\n")[0].split()
    return words[1] if len(words) > 1 and words[0].startswith("HTTP/") else ""


def _headers(output: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in output.split("\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs if value}
