"""What lies in the box's store: listed, cleared of what nobody uses, proved by every byte and repaired."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.box.bench import Bench
from tests.support.envelope import the_rig

STORE = "/var/lib/llamaherd/models"
OLD = f"org/name/{'ab' * 20}"
PART = f".incoming/{'12' * 32}"
MIB = 1 << 20


def said(bench: Bench, *words: str) -> Any:
    """Return the row of the box in what a command prints as JSON."""
    return the_rig(bench.herd(*words, "--json").output)


def users(bench: Bench) -> dict[str, set[str]]:
    """Who uses each revision."""
    listed = said(bench, "models", "box")["revisions"]
    return {each["folder"]: {user["name"] for user in each["users"]} for each in listed}


@pytest.fixture(scope="module", autouse=True)
def _cleared(converged: Bench) -> None:
    """Other tests have left models that nobody uses any more."""
    ended = converged.herd("models", "prune", "--yes")
    assert ended.code == 0, ended.output


@pytest.fixture
def unused(converged: Bench) -> Iterator[Bench]:
    """The box with a revision that nobody declares, and a part that nobody wants."""
    converged.sh(
        f"cd {STORE} && mkdir -p {OLD} .incoming && head -c {MIB} /dev/urandom >{OLD}/a.gguf && cd {OLD} && "
        "stat -c \"%s\t%.9Y\t$(sha256sum <a.gguf | cut -d ' ' -f 1)\t%n\" a.gguf >.manifest && "
        f"head -c {MIB} /dev/urandom >{STORE}/{PART}.part"
    )
    yield converged
    converged.sh(f"rm -rf {STORE}/org {STORE}/{PART}.part")


def test_models_and_who_uses_them(converged: Bench) -> None:
    found = users(converged)
    gemma = next(names for names in found.values() if "chat" in names)
    assert {"chat", "ik-chat", "llama-chat.service", "llama-ik-chat.service"} <= gemma
    assert any({"drafter", "llama-drafter"} <= names for names in found.values())
    listed = said(converged, "models", "box")
    sizes = converged.sh(f"find {STORE} -name '*.gguf' -printf '%s\\n'").split()
    assert sum(each["size"] for each in listed["revisions"]) == sum(map(int, sizes))
    assert {each["state"] for each in listed["revisions"]} == {"whole"}
    assert listed["removals"] == []
    assert listed["free"] > 0


def test_what_nobody_uses_goes_and_no_server_notices(unused: Bench) -> None:
    before = unused.running()
    assert users(unused)[OLD] == set()
    assert unused.herd("models", "prune").code == 2
    pruned = said(unused, "models", "prune", "box", "--yes")
    assert pruned["frees"] >= 2 * MIB
    assert set(pruned["outcome"]["removed"]) == {OLD, PART}
    assert unused.sh(f"ls -A {STORE} | grep -v -e local -e incoming -e lock", check=False) == ""
    unused.unchanged(before)
    assert unused.answers("chat")
    again = unused.deploy()
    assert (again.code, again.changes) == (0, 0), again.output


def test_what_a_container_of_somebody_has_mounted_stays(unused: Bench) -> None:
    image = unused.sh("docker image ls -q llamaherd/engine | head -n 1")
    unused.sh(
        f"docker run -d --rm --name mine --network none -v {STORE}/{OLD}:/m:ro --entrypoint /usr/bin/busybox "
        f"{image} tail -f /m/a.gguf"
    )
    try:
        assert users(unused)[OLD] == {"mine"}
        ended = unused.herd("models", "prune", "--yes")
        assert ended.code == 0, ended.output
        assert unused.sh(f"ls {STORE}/{OLD}") == "a.gguf"
    finally:
        unused.sh("docker kill mine")


def test_nothing_goes_while_models_are_fetched(unused: Bench) -> None:
    unused.sh("systemd-run -q --collect --unit=llamaherd-fetch sleep 60")
    try:
        assert said(unused, "models", "box")["fetch"] is not None
        ended = unused.herd("models", "prune", "--yes")
        assert ended.code == 1
        assert "nothing was removed: another run fetches" in ended.output
        assert unused.sh(f"ls {STORE}/{OLD}") == "a.gguf"
    finally:
        unused.sh("systemctl stop llamaherd-fetch")


def test_one_wrong_byte_is_found_and_brought_again(converged: Bench) -> None:
    """With the time of the file as it was: no look at sizes and times would find it."""
    before = converged.running()
    model = converged.sh(f"ls {STORE}/local/*/tiny-moe.gguf")
    sha256 = converged.rig()["models"]["tiny-moe"]["sha256"]
    whole = converged.herd("verify", "--deep")
    assert whole.code == 0, whole.output
    assert "tiny-moe: 1 file as declared, by sha256" in whole.output
    converged.sh(
        f"touch -r {model} /run/then; printf x | dd of={model} bs=1 seek=5000000 conv=notrunc status=none; "
        f"touch -r /run/then {model}; rm /run/then"
    )
    damaged = converged.herd("verify", "--deep")
    assert damaged.code == 1, damaged.output
    assert "tiny-moe.gguf is damaged: its sha256 is " in damaged.output
    assert "`herd up box` fetches it again" in damaged.output
    assert "Traceback" not in damaged.output
    ended = converged.deploy()
    assert ended.code == 0, ended.output
    assert converged.sh(f"sha256sum {model}").split()[0] == sha256
    converged.unchanged(before, "drafter")
    assert converged.answers("drafter").startswith("abcdefgh")
    again = converged.deploy()
    assert (again.code, again.changes) == (0, 0), again.output
