"""The verification of a host as a whole: probes, verbs of roles, and a script of a fleet's own role."""

from __future__ import annotations

import json

import pytest

from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.document import DocumentError, decode, dump, encode, parse_document
from llamaherd.onhost.system import TIMED_OUT, Ended, FailedError
from llamaherd.onhost.verbs import find_verb
from llamaherd.onhost.verification import Probe, Text, VerifyInput, VerifyResult, verify
from llamaherd.pipeline.verify import HostFacts, facts_of, judge_host, verify_input
from llamaherd.pipeline.verify import verify_rig as verify_host
from llamaherd.role.reach import Door, Reach
from roles import ROLES
from roles.serve.onhost.model import Responses, ServerFound, VerifiedServers, VerifyServersInput
from tests.host.test_protocol import saying
from tests.support.inspected_host import InspectedHost
from tests.support.rigs import cpu_rig, planned

VERB = "serve.verification.verify"


def test_verbs_run_after_probes_and_a_script_after_both() -> None:
    host = InspectedHost({"echo": Ended(0, "a\n"), "sh": Ended(0, "@ begin\n@ x\t\n\ty\n@ end\n")})
    found = verify(VerifyInput((Probe("p", "", ("echo",)),), {VERB: encode(VerifyServersInput())}, "a script"), host)
    assert found == VerifyResult(
        (Text("p", "", "a"),), {VERB: VerifiedServers(listening=())}, lines=("@ begin", "@ x\t", "\ty", "@ end")
    )
    assert [words[0] for words in host.ran] == ["echo", "sh"]
    result = parse_document(dump(found).encode())
    assert facts_of(result, ROLES) == HostFacts(
        {("p", ""): "a", ("x", ""): "y"}, {VerifiedServers: VerifiedServers(listening=())}
    )


def test_no_script_is_run_where_there_is_none() -> None:
    host = InspectedHost()
    assert verify(VerifyInput(), host) == VerifyResult()
    assert host.ran == []


def test_an_input_that_no_verb_reads_runs_nothing() -> None:
    host = InspectedHost()
    probes = (Probe("p", "", ("echo",)),)
    with pytest.raises(DocumentError, match="no verb"):
        verify(VerifyInput(probes, {"serve.verification.gone": {}}), host)
    assert host.ran == []
    with pytest.raises(DocumentError, match="is not of type"):
        verify(VerifyInput((), {VERB: {"servers": 5}}), host)


@pytest.mark.usefixtures("starts_processes")
def test_a_part_that_does_not_respond_is_unknown_and_the_others_run() -> None:
    """Docker's socket is one of this machine, so this is no pure test."""
    host = InspectedHost({"systemctl": Ended(TIMED_OUT)})
    host.folders.add("/run/systemd/system")
    silent = "serve.inspection.inspect"
    found = verify(VerifyInput(parts={silent: {}, VERB: {}}), host)
    assert (found.unknown, list(found.parts)) == ({silent: "systemd"}, [VERB])


def test_what_is_unknown_is_one_failed_check() -> None:
    rig = Rig.model_validate(cpu_rig())
    report = judge_host(rig, planned(cpu_rig()), ROLES, HostFacts(unknown={VERB: "Docker"}))
    (check,) = [each for each in report.machine if each.name == "serve"]
    assert (check.ok, check.detail, report.instances) == (False, "Docker did not respond: run again", ())


@pytest.mark.parametrize("result", ["[]", '{"parts":{"serve.verification.verify":5}}', '{"more":1}', '{"texts":[5]}'])
def test_a_result_that_the_program_cannot_have_returned(result: str) -> None:
    with pytest.raises(UnexpectedLineError, match="printed an unexpected line"):
        facts_of(json.loads(result), ROLES)


def test_a_plan_of_ours_needs_no_script() -> None:
    made = verify_input(planned(cpu_rig()), ROLES)
    assert (made.script, list(made.parts)) == ("", [VERB])
    document = parse_document(dump(made).encode())
    decoded = decode(VerifyInput, document)
    assert decode(find_verb(VERB).input, decoded.parts[VERB]) == made.parts[VERB]


def test_servers_that_respond_on_their_host_are_tried_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that do not are no riddle of a firewall."""
    tried: list[object] = []

    def record(_: object, doors: list[Door], own: list[str], walls: list[Door]) -> dict[str, Reach]:
        tried.extend([[each.name for each in doors], own, [each.name for each in walls]])
        return {"chat": Reach(ok=False, detail="it is refused")}

    monkeypatch.setattr("llamaherd.pipeline.verify.reached", record)
    plan = planned(cpu_rig(), {"instances/chat/listen": "0.0.0.0"})
    servers = {"chat": responding("ok\n200"), "drafter": responding("curl: (7) no\n\n000")}
    texts = (Text("addresses", "", "2: eth0    inet 10.0.0.5/24 brd x\n"),)
    result = VerifyResult(texts, {VERB: VerifiedServers(servers)})
    report = verify_host(Rig.model_validate(cpu_rig()), plan, ROLES, returning(result))
    assert tried == [["chat"], ["10.0.0.5/24"], []]
    (check,) = [each for each in report.instances[0].checks if each.name == "reach"]
    assert (check.ok, check.detail) == (False, "it is refused")
    tried.clear()
    servers["drafter"] = responding("{}\n200")
    verify_host(
        Rig.model_validate(cpu_rig()),
        planned(cpu_rig()),
        ROLES,
        returning(VerifyResult((), {VERB: VerifiedServers(servers)})),
    )
    assert tried == [[], [], ["chat", "drafter"]]


def responding(health: str) -> ServerFound:
    """Return a server with this response."""
    return ServerFound(responses=Responses(health=health))


def returning(result: VerifyResult) -> Remote:
    """Return a host whose program returns this."""
    return saying(dump({"event": "result", "value": result}) + "\n")


def test_scripts_that_print_too_much_are_reported() -> None:
    """The end of their output alone would read as if the host had stopped halfway."""
    host = InspectedHost({"sh": Ended(0, "the end", "", is_cut=True)})
    with pytest.raises(FailedError, match="the scripts with which roles verify the host print more than 1 MiB"):
        verify(VerifyInput(script="yes"), host)
