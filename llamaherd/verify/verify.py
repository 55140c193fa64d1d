"""Asks the live host whether it is what was declared, by other means than those that made it so.

One script in one connection asks for everything; what it printed is then judged here, by pure functions.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from llamaherd.host.answers import Answers, Chat, Reply, chat, mapping, objects, pairs, parse, reply
from llamaherd.host.dial import reached
from llamaherd.host.limits import LIMITS_FORMAT
from llamaherd.host.looks.serving import DECIDING
from llamaherd.host.reach import Reach, doors
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.layout import POWER_RUN, POWER_UNIT
from llamaherd.plan import BuildPlan, InstancePlan, Plan
from llamaherd.text.render import render
from llamaherd.text.units import show_size
from llamaherd.verify.brought import brought_checks, places
from llamaherd.verify.cards import on_cards
from llamaherd.verify.container import WALLS_FORMAT, strange_container
from llamaherd.verify.driver import driver_checks
from llamaherd.verify.host import host_checks, permissions
from llamaherd.verify.machine import PREPROCESSED, machine_checks
from llamaherd.verify.power import QUERY, power_checks

PROMPT = "The three primary colours are"
"""Answered by models that were taught to chat, and completed by those that were not."""
CHAT_SECONDS = 120
"""For one answer of at most 64 tokens: a big model on a slow host manages one token a second."""

SLOW = 0.5
"""Of the speed that is expected: below this, an instance is not as declared."""

_BASE_SECONDS = 60
_SOCKET = re.compile(r"([0-9A-Fa-f]{8}|[0-9A-Fa-f]{32}):([0-9A-Fa-f]{1,4})")
_SIZE = re.compile(r"[0-9]{1,18}")
_FOREIGN_MARKERS = ("<|im_start|>", "<|im_end|>")
"""Of the chat template that a server falls back to. A model that knows them ends there, and does not spell them."""


@dataclass(frozen=True)
class Check:
    """One thing that was asked; `detail` says what was found, and what was declared where that is not the same."""

    name: str
    ok: bool
    detail: str
    doubt: bool = False
    """Nothing has failed, and it may not be as meant all the same."""


@dataclass(frozen=True)
class InstanceReport:
    """One instance: what it is declared as, what it said, and whether it is what it should be."""

    name: str
    backend: str
    model: str
    engine: str
    build: str | None
    port: int
    answer: str
    tokens_per_second: float | None
    draft_n: int | None
    draft_accepted: int | None
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)


@dataclass(frozen=True)
class Installed:
    """Something that was found on the host, and where."""

    what: str
    where: str


@dataclass(frozen=True)
class Report:
    """What verification found on one rig."""

    rig: str
    instances: tuple[InstanceReport, ...]
    installed: tuple[Installed, ...]
    cards: tuple[Check, ...] = ()
    driver: tuple[Check, ...] = ()
    machine: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every check of every instance, of every card, of the driver and of the host under them passed."""
        below = (*self.driver, *self.cards, *self.machine)
        return all(instance.ok for instance in self.instances) and all(check.ok for check in below)

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {"rig": self.rig, "ok": self.ok, **asdict(self)}


def verify(rig: Rig, plan: Plan, remote: Remote) -> Report:
    """Ask the rig's host, and judge. Raises RemoteError where it cannot be asked."""
    result = remote.run(question(plan), _BASE_SECONDS + len(plan.instances) * (CHAT_SECONDS + 20))
    answers = parse(result.out)
    if ("end", "") not in answers:
        said = result.err.strip().splitlines()[-1:] or ["it said nothing"]
        raise RemoteError(f"the host stopped answering halfway: {said[0]}", "try again; is it out of memory?")
    return judge(rig, plan, answers, _reached(rig, plan, answers))


def _reached(rig: Rig, plan: Plan, answers: Answers) -> dict[str, Reach]:
    """Which servers for others are reached from here, of those that answer on their own host."""
    well = [each.name for each in plan.instances if reply(answers.get(("health", each.name), "")).status == 200]
    return reached(rig.connect, doors(plan, well), answers.get(("addresses", ""), "").split("\n"))


def question(plan: Plan) -> str:
    """The script that asks a host for everything; no key is in it."""
    bodies = {
        instance.name: json.dumps(
            {
                "model": instance.model,
                "messages": [{"role": "user", "content": PROMPT}],
                "stream": True,
                "temperature": 0,
                "max_tokens": 64,
            }
        )
        for instance in plan.instances
    }
    return render(
        "verify.sh.j2",
        plan=plan,
        chat=bodies,
        chat_seconds=CHAT_SECONDS,
        card_fields=QUERY,
        power_unit=POWER_UNIT,
        power_run=POWER_RUN,
        preprocessed=PREPROCESSED,
        limits=LIMITS_FORMAT,
        deciding=DECIDING,
        brought=places(plan),
        walls=WALLS_FORMAT,
    )


def judge(rig: Rig, plan: Plan, answers: Answers, reached: Mapping[str, Reach] | None = None) -> Report:
    """The report that follows from what the host said, and from which of its servers are `reached` from here."""
    builds = {build.id: build for build in plan.builds}
    return Report(
        rig=plan.rig,
        instances=tuple(
            _instance(
                rig.instances[planned.name],
                planned,
                builds.get(planned.build or ""),
                plan,
                answers,
                (reached or {}).get(planned.name),
            )
            for planned in plan.instances
        ),
        installed=tuple(_installed(plan, answers)),
        machine=tuple(
            Check(*each) for checks in (host_checks, brought_checks, machine_checks) for each in checks(plan, answers)
        ),
        cards=tuple(Check(*each) for each in power_checks(plan.power, answers)) if plan.power else (),
        driver=tuple(Check(*each) for each in driver_checks(plan.driver, answers)) if plan.driver else (),
    )


def _instance(
    declared: Instance,
    planned: InstancePlan,
    build: BuildPlan | None,
    plan: Plan,
    answers: Answers,
    reach: Reach | None,
) -> InstanceReport:
    name = planned.name
    streamed = reply(answers.get(("chat", name), ""))
    said = chat(streamed.body)
    props = reply(answers.get(("props", name), ""))
    checks = [
        _serving(planned, pairs(answers.get(("serving", name), "")), answers.get(("shared", name), "")),
        _process(planned, answers),
        _in_place(planned, build, plan, answers),
        _listening(planned, answers.get(("listening", ""), "")),
        _health(planned, reply(answers.get(("health", name), ""))),
        *([Check("reach", reach.ok, reach.detail, reach.doubt)] if reach else []),
        *([Check("on cards", *on_cards(planned, answers))] if planned.server.cards else []),
        *([_locked(reply(answers.get(("keyless", name), "")))] if planned.key_file else []),
        *_serves(declared, planned, reply(answers.get(("models", name), "")), props),
        _streams(streamed, said),
        *([_drafts(streamed, said)] if planned.drafts and planned.endpoint.counts_drafts else []),
        *([_fast(planned.expect.decode, said)] if planned.expect and planned.expect.decode else []),
    ]
    return InstanceReport(
        name=name,
        backend=planned.backend,
        model=planned.model,
        engine=planned.engine,
        build=planned.build or planned.server.image,
        port=planned.endpoint.port,
        answer=said.answer,
        tokens_per_second=said.tokens_per_second,
        draft_n=said.draft_n,
        draft_accepted=said.draft_accepted,
        checks=tuple(checks),
    )


def _serving(planned: InstancePlan, seen: Mapping[str, str], shared: str) -> Check:
    """Up, and up again after the host has been switched off and on."""
    if planned.backend == "systemd":
        name, place = "unit", f"{planned.service}.service"
        state, boot = seen.get("ActiveState", "unknown to systemd"), seen.get("UnitFileState") or "not there"
        up, stays = state == "active", boot == "enabled"
        why = seen.get("Result", "success")
        found = f"{place} is {state}, {boot}" + (f" ({why})" if why != "success" else "")
        if strange := _not_ours(planned, seen) or "; ".join(
            f"{each.strip()} for it" for each in shared.split("\n") if each
        ):
            up, found = False, f"{found}; {strange}"
    else:
        name, place = "container", planned.service
        state, health = seen.get("Status", "not there"), seen.get("Health") or "without a health check"
        restart, docker = seen.get("Restart", "no"), seen.get("Docker", "not there")
        up = (state, health) == ("running", "healthy")
        stays = restart in {"always", "unless-stopped"} and docker == "enabled"
        found = f"{place} is {state}, {health}" if state != "not there" else f"there is no container {place}"
        if up and not stays:
            found += f", but restart is `{restart}` and docker.service {docker}"
        if up and (differ := list(strange_container(planned, seen))):
            up, found = False, "; ".join([found, *differ])
    return Check(name, up and stays, found)


def _not_ours(planned: InstancePlan, seen: Mapping[str, str]) -> str:
    """What others wrote for a unit, and what systemd has not read yet."""
    own = f"/{planned.service}.service.d/"
    drop_ins = [f"/{path}" for path in seen.get("DropInPaths", "").removeprefix("/").split(" /") if own in f"/{path}"]
    if drop_ins:
        return f"{', '.join(drop_ins)} changes it, and is not declared: `herd up` sets that aside"
    if seen.get("FragmentPath") not in (None, "", planned.file.path):
        return f"it is defined by {seen['FragmentPath']}"
    return "its file has changed since systemd read it: `herd up`" if seen.get("NeedDaemonReload") == "yes" else ""


def _process(planned: InstancePlan, answers: Answers) -> Check:
    """What runs now, read from the process itself: the binary, its arguments and the spec it was started with."""
    text = answers.get(("process", planned.name), "")
    seen = pairs(text)
    argv = [line.removeprefix("argv=") for line in text.split("\n") if line.startswith("argv=")]
    if not argv:
        holder = answers.get(("holder", planned.name), "").strip()
        taken = f", and port {planned.endpoint.port} is held by {holder}" if holder else ""
        return Check("process", False, f"no process runs{taken}")
    problems = []
    if seen.get("state") == "stopped":
        problems.append("it is stopped (SIGSTOP), and answers nobody: `herd up` starts it anew")
    serving = pairs(answers.get(("serving", planned.name), ""))
    spec = seen.get("spec") if planned.backend == "systemd" else serving.get("Spec")
    if spec != planned.spec:
        problems.append(f"it runs spec {spec or 'none'}, declared is {planned.spec}: `herd up`")
    # What comes before is the program, and for a pulled image whatever its entrypoint has.
    if (arguments := tuple(argv[-len(planned.server.arguments) :])) != planned.server.arguments:
        differ = [f"`{value}`" for value in arguments if value not in planned.server.arguments] or ["their order"]
        problems.append(f"its arguments are not the declared ones: {' '.join(differ)}")
    if seen.get("account") not in (None, "", seen.get("uid")):
        problems.append(f"it runs as user {seen.get('uid')}, {planned.server.user} is {seen.get('account')}: `herd up`")
    if names := answers.get(("variables", planned.name), "").split():
        problems.append(f"it has other variables than the declared ones: {', '.join(names)}: `herd up`")
    if planned.build:
        built = mapping(_manifest(planned.build, answers).get("sha256")).get("llama-server")
        if seen.get("sha256") != built:
            problems.append(f"its binary (sha256 {str(seen.get('sha256'))[:12]}…) is not the one of {planned.build}")
    return Check("process", not problems, "; ".join(problems) or f"runs spec {planned.spec}")


def _in_place(planned: InstancePlan, build: BuildPlan | None, plan: Plan, answers: Answers) -> Check:
    """The files that it would start from the next time."""
    problems = []
    if build and _manifest(build.id, answers).get("id") != build.id:
        problems.append(f"{build.folder} holds no finished build")
    if build:
        problems += _replaced(build, answers)
    problems += [line for line in answers.get(("unreadable", planned.name), "").split("\n") if line]
    problems += permissions(planned, answers.get(("owners", planned.name), ""))
    definition = answers.get(("file", planned.name))
    if definition != hashlib.sha256(planned.file.text.encode()).hexdigest():
        problems.append(f"{planned.file.path} is {'not as planned: `herd up`' if definition else 'not there'}")
    for model in plan.models:
        stored = _stored(model.folder, answers)
        for file in model.files if model.name == planned.model else ():
            if file.name not in stored:
                problems.append(f"{PurePosixPath(model.folder, file.name)} is not there")
            elif file.size not in (None, stored[file.name]):
                problems.append(f"{file.name} has {stored[file.name]} bytes, the lock says {file.size}")
    return Check("files", not problems, "; ".join(problems) or "engine, model and definition are in place")


def _replaced(build: BuildPlan, answers: Answers) -> list[str]:
    """Programs that are there, and are not what was built."""
    built = mapping(_manifest(build.id, answers).get("sha256"))
    lines = (line.split("  ", 1) for line in answers.get(("programs", build.id), "").split("\n") if "  " in line)
    return [
        f"{build.folder}/bin/{name} is {'not what' if name in built else 'no part of what'} was built: `herd up`"
        for sha256, name in lines
        if built.get(name) != sha256
    ]


def _listening(planned: InstancePlan, text: str) -> Check:
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


def _health(planned: InstancePlan, health: Reply) -> Check:
    if planned.endpoint.health_status is None:
        return Check("health", health.status == 200, "answers" if health.status == 200 else health.problem)
    found = health.problem or f"status is `{health.json.get('status')}`"
    return Check("health", not health.problem and health.json.get("status") == planned.endpoint.health_status, found)


def _locked(keyless: Reply) -> Check:
    """A key that is declared but not asked for protects nothing."""
    if keyless.status == 200:
        return Check("key", False, "it answers without the API key that is declared")
    return Check("key", keyless.status == 401, "asked for" if keyless.status == 401 else keyless.problem)


def _serves(declared: Instance, planned: InstancePlan, models: Reply, props: Reply) -> tuple[Check, Check]:
    """The model and its context; an engine that tells nothing else has both in its list of models."""
    if planned.endpoint.props_path:
        return _model(planned, models, props), _context(declared, props)
    if models.problem:
        return Check("model", False, models.problem), Check("context", False, models.problem)
    served = {str(model.get("id")): model.get("max_model_len") for model in objects(models.json.get("data"))}
    names, context = ", ".join(served) or "none", served.get(planned.model)
    right = list(served) == [planned.model]
    return (
        Check("model", right, names if right else f"{names}; declared is {planned.model}"),
        Check("context", context == declared.context, f"{context} tokens, declared are {declared.context}"),
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


def _context(declared: Instance, props: Reply) -> Check:
    """Slots share the declared context unless they have one cache together; engines round up to 256 cells."""
    if props.problem:
        return Check("context", False, props.problem)
    found, slots = mapping(props.json.get("default_generation_settings")).get("n_ctx"), props.json.get("total_slots")
    unified = {"--kv-unified", "-kvu"} & set(declared.extra_args)
    share = declared.context if unified else declared.context // declared.parallel
    right = isinstance(found, int) and share <= found < share + 256 and slots == declared.parallel
    detail = f"{slots} slot(s) of {found} tokens"
    return Check("context", right, detail if right else f"{detail}, declared is {declared.parallel} of {share}")


def _streams(streamed: Reply, said: Chat) -> Check:
    if streamed.problem:
        return Check("chat", False, streamed.problem)
    if said.chunks < 2 or not said.answer:
        return Check("chat", False, f"the answer does not stream: {said.chunks} pieces with text")
    speed = f", {said.tokens_per_second:.1f} tokens/s" if said.tokens_per_second else ""
    # As declared, so that nothing failed; but hardly as meant.
    doubt = any(marker in said.answer for marker in _FOREIGN_MARKERS)
    note = "; it spells out chat markers: this model needs a `--chat-template` in `extra_args`" if doubt else ""
    return Check("chat", True, f"streams in {said.chunks} pieces{speed}{note}")


def _drafts(streamed: Reply, said: Chat) -> Check:
    if streamed.problem:
        return Check("drafts", False, streamed.problem)
    if not said.draft_n:
        return Check("drafts", False, "no token was drafted, though `draft` is declared")
    return Check("drafts", True, f"{said.draft_accepted} of {said.draft_n} drafted tokens accepted")


def _fast(expected: float, said: Chat) -> Check:
    """Half as fast as its owner expects is no bad day: a server that lost its card answers all the same."""
    if not said.tokens_per_second:
        return Check("speed", False, f"it tells no speed; expected are {expected:g} tokens/s")
    detail = f"{said.tokens_per_second:.1f} tokens/s, expected are {expected:g}"
    return Check("speed", said.tokens_per_second >= expected * SLOW, detail)


def _manifest(build: str, answers: Answers) -> dict[str, Any]:
    return Reply(200, answers.get(("build", build), ""), "").json


def _stored(folder: str, answers: Answers) -> dict[str, int]:
    rows = (line.partition("\t") for line in answers.get(("model", folder), "").split("\n"))
    return {name: int(size) for size, tab, name in rows if tab and _SIZE.fullmatch(size)}


def _installed(plan: Plan, answers: Answers) -> Iterator[Installed]:
    """What is there of what was planned."""
    for build in plan.builds:
        if manifest := _manifest(build.id, answers):
            version = str(manifest.get("version", "")).removeprefix("version: ")
            yield Installed(f"{build.kind} ({build.id}, {version}, {manifest.get('compiler')})", build.folder)
    for model in plan.models:
        if stored := _stored(model.folder, answers):
            yield Installed(f"model {model.name} ({show_size(sum(stored.values()))})", model.folder)
    for image in plan.images:
        if _SIZE.fullmatch(size := answers.get(("image", image.tag), "").strip()):
            yield Installed(f"image {image.tag} ({show_size(int(size))})", "Docker's store")
    for instance in plan.instances:
        if answers.get(("file", instance.name)):
            kind = "unit" if instance.backend == "systemd" else "compose project"
            yield Installed(f"{kind} {instance.service}", instance.file.path)
