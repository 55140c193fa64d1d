"""A page to chat on, on a real host: a container beside a real gateway, before real servers.

Its image is made here and stands in for Open WebUI's: `tests/box/page_image.py` says what it has of that. All else is
what a fleet gets: Docker fetches the image by its digest, Compose starts it, and HAProxy answers it by a CA of ours.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from llamaherd.layout import CHAT_USER
from tests.box import page_image, registry
from tests.box.bench import HERD, Bench, Ended
from tests.box.changes import KILL_PROGRAM

PORT = 3000
FOLDER, DATA, NAME = "/etc/llamaherd/chat", "/var/lib/llamaherd-chat", "llamaherd-chat"
KEYS = ("key", "secret")
AS_IT_IS_MADE_ANEW = f"""
until docker inspect -f '{{{{.Config.Image}}}}' {NAME} 2>/dev/null | grep -q IMAGE; do sleep 0.02; done
{KILL_PROGRAM}
"""
"""The moment when the container is of another image: the program that waits until it is healthy is killed."""


@dataclass(frozen=True)
class Page:
    """The rig with a page, and the two versions of its image: one that serves, one that ends as it starts."""

    bench: Bench
    serves: str
    ends: str

    def declare(self, image: str) -> None:
        """The fleet's page is of this image; users that were added stay."""
        file = self.bench.folder / "fleet.yaml"
        fleet = yaml.safe_load(file.read_text())
        fleet["gateway"]["chat"]["image"] = image
        file.write_text(yaml.safe_dump(fleet))

    def up(self) -> Ended:
        """A run that comes out well."""
        ended = self.bench.up("--yes")
        assert ended.code == 0, ended.output
        return ended

    def settled(self) -> None:
        """A run changes nothing, and the container is the one that was there."""
        before = self.container()
        again = self.bench.up("--yes")
        assert (again.code, again.changes) == (0, 0), again.output
        assert self.container() == before

    def container(self) -> str:
        """Which one runs, since when, and whether it is well."""
        form = "{{.Id}} {{.State.StartedAt}} {{.State.Health.Status}} {{.Config.Image}}"
        return self.bench.sh(f"docker inspect -f '{form}' {NAME} 2>&1", check=False)

    def answered(self, path: str = "") -> str:
        """What it answers, past everything under test; nothing where it does not."""
        return self.bench.sh(f"curl -s -m 300 http://127.0.0.1:{PORT}/{path}", check=False)

    def asked(self, path: str = "") -> dict[str, Any]:
        """The same of one that answers."""
        answer: dict[str, Any] = json.loads(self.answered(path))
        return answer

    def serves_as_declared(self) -> None:
        """The version that serves is there and well."""
        *_, health, image = self.container().split()
        assert (health, image) == ("healthy", self.serves)
        assert self.asked()["version"] == "1"


def fleet() -> str:
    """The fleet's file, before there is a user."""
    return yaml.safe_dump(
        {
            "gateway": {
                "on": ["box"],
                "port": 8090,
                "tls": {"ca": "keys/ca"},
                "models": {"small": {"serve": ["box.drafter"]}, "coder": {"serve": ["box.chat"]}},
            }
        }
    )


@pytest.fixture(scope="module")
def images(converged: Bench) -> Iterator[tuple[str, str]]:
    """A version that serves, and one that ends as it starts."""
    try:
        page_image.prepare(converged)
        serves = page_image.publish(converged, "1")
        yield serves, page_image.publish(converged, "2", "raise SystemExit('this database is of a newer version')")
    finally:
        registry.remove(converged)


@pytest.fixture(scope="module")
def page(converged: Bench, images: tuple[str, str]) -> Iterator[Page]:
    """The rig as a gateway with a page. Afterwards nothing of it is left."""
    serves, ends = images
    file = converged.folder / "fleet.yaml"
    file.write_text(fleet())
    for command in (("users", "add", "page", "--model", "small", "--streams", "8"), ("gateway", "ca")):
        assert (said := converged.herd(*command)).code == 0, said.output
    declared = yaml.safe_load(file.read_text())
    declared["gateway"]["chat"] = {"image": serves, "user": "page"}
    file.write_text(yaml.safe_dump(declared))
    made = Page(converged, serves, ends)
    ended = made.up()
    assert "chat_page | a page that people chat on" in ended.output
    yield made
    file.write_text("gateway: null\n")
    made.up()
    file.unlink()
    converged.sh(f"rm -rf {DATA}")
    assert converged.sh(f"docker ps -aq --filter name={NAME}; ls -d {FOLDER} 2>/dev/null", check=False) == ""


def key(page: Page) -> str:
    """The key of the page's user."""
    return (page.bench.folder / "keys/users/page").read_text().strip()


def test_it_answers_by_a_real_model_through_the_gateway(page: Page) -> None:
    page.serves_as_declared()
    answer = page.asked("ask/hello")
    assert answer["said"], answer
    assert answer["kept"][-1] == "hello"


def test_a_second_run_changes_nothing_and_verify_is_content(page: Page) -> None:
    page.settled()
    verified = page.bench.herd("verify", "-v", "box")
    assert verified.code == 0, verified.output
    assert f"is running healthy as {CHAT_USER}:{CHAT_USER}" in verified.output
    assert f"responds on port {PORT}" in verified.output
    assert "its user alone reads keys and conversations" in verified.output
    planned = page.bench.herd("show", "box")
    assert f"chat page  http on 127.0.0.1:{PORT}, as user page, small first" in planned.output


def test_keys_are_in_files_and_nowhere_else(page: Page) -> None:
    bench = page.bench
    secret = bench.sh(f"cat {FOLDER}/secret")
    assert page.asked()["signs"] == hashlib.sha256(secret.encode()).hexdigest()
    assert bench.sh(f"cat {FOLDER}/key") == key(page)
    modes = bench.sh(f"cd {FOLDER} && stat -c '%a %u' . {' '.join(KEYS)} {DATA}").splitlines()
    assert modes == ["700 0", *[f"400 {CHAT_USER}"] * len(KEYS), f"700 {CHAT_USER}"]
    told = bench.sh(
        f"docker inspect {NAME}; docker logs {NAME} 2>&1; journalctl -q; cat /run/llamaherd-chat.log; "
        "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
    )
    said = page.bench.herd("show", "box", "--json").output
    for hidden in (key(page), secret):
        assert hidden not in told
        assert hidden not in said
        found = bench.sh(f"grep -rlIF -- {hidden} /etc /run/llamaherd* /opt/llamaherd /var/lib/llamaherd* || :")
        assert [path for path in found.split() if path not in {f"{FOLDER}/{name}" for name in KEYS}] == []


def test_it_is_confined(asked: Host, page: Page) -> None:
    """By what the kernel says of its process."""
    pid = page.bench.sh(f"docker inspect -f '{{{{.State.Pid}}}}' {NAME}")
    status = page.bench.sh(f"cat /proc/{pid}/status")
    for what in (rf"Uid:\s+{CHAT_USER}\b", r"CapEff:\s+0+$", r"CapBnd:\s+0+$", r"NoNewPrivs:\s+1$"):
        assert re.search(f"^{what}", status, re.MULTILINE), status
    mounts = dict(line.split()[1::2] for line in page.bench.sh(f"cut -d ' ' -f 1-4 /proc/{pid}/mounts").splitlines())
    assert {target for target, how in mounts.items() if "rw" in how.split(",")} >= {"/data", "/tmp"}
    for target in ("/", "/run/llamaherd/key", "/run/llamaherd/secret", "/run/llamaherd/root.pem"):
        assert mounts[target].startswith("ro"), mounts
    assert asked.socket(f"tcp://127.0.0.1:{PORT}").is_listening
    assert not asked.socket(f"tcp://0.0.0.0:{PORT}").is_listening


def put_back(page: Page) -> None:
    """A run fails for what is declared, and what served before does again; that is what is declared then."""
    ended = page.bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "what served before does again" in ended.output
    assert "Traceback" not in ended.output
    page.serves_as_declared()
    page.declare(page.serves)
    page.settled()


def test_a_version_that_ends_as_it_starts_is_put_back(page: Page) -> None:
    before = page.asked("ask/before")["kept"]
    page.declare(page.ends)
    put_back(page)
    assert page.asked("ask/after")["kept"] == [*before, "after"]


@pytest.mark.rare
def test_a_version_that_never_answers_is_put_back(page: Page) -> None:
    """After all of its time."""
    page.declare(page_image.publish(page.bench, "3", "import time; time.sleep(3600)"))
    put_back(page)


@pytest.mark.rare
def test_an_image_that_cannot_be_fetched_touches_nothing(page: Page) -> None:
    before = page.container()
    page.declare(f"{registry.HOST}/open-webui@sha256:{'ab' * 32}")
    ended = page.bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "the image of the chat page cannot be fetched; what ran before still does" in ended.output
    assert page.container() == before
    page.declare(page.serves)
    page.settled()


@pytest.mark.rare
def test_what_was_done_by_hand_is_mended(page: Page) -> None:
    page.bench.sh(f"docker stop {NAME}; chmod 0644 {FOLDER}/key")
    seen = page.bench.herd("verify", "box")
    assert seen.code == 1, seen.output
    assert f"others may read 644 {CHAT_USER} {FOLDER}/key: `herd up` mends that" in seen.output
    assert "Failed to connect" in seen.output
    output = page.up().output
    assert "it is exited" in output
    page.serves_as_declared()
    page.settled()


@pytest.mark.rare
def test_another_key_makes_it_anew_and_logins_stay(page: Page) -> None:
    before, signs, old = page.container(), page.asked()["signs"], key(page)
    assert page.bench.herd("users", "rotate", "page").code == 0
    assert key(page) != old
    page.up()
    assert page.container() != before
    assert page.asked()["signs"] == signs
    assert page.asked("ask/anew")["said"], "the gateway knows the new key"
    page.settled()


def test_a_run_that_is_killed_is_gone_on_with(page: Page) -> None:
    """The program on its host goes on without it, and the next run waits for that."""
    page.bench.sh(f"docker rm -f {NAME}")
    page.bench.killed(signal.SIGKILL, lambda line: "starting the chat page" in line, [HERD, "up", "-v", "--yes"])
    page.up()
    page.serves_as_declared()
    page.settled()


def test_a_program_that_is_killed_takes_away_nothing_of_the_way_back(page: Page) -> None:
    """What it was about to start never served: the run after it comes back to what did."""
    # It runs for a while before it ends, so that its program is still waiting when it is killed.
    ends_later = page_image.publish(page.bench, "3", "import time; time.sleep(20); raise SystemExit('no database')")
    page.declare(ends_later)
    with ThreadPoolExecutor() as pool:
        pool.submit(page.bench.sh, AS_IT_IS_MADE_ANEW.replace("IMAGE", ends_later))
        ended = page.bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "what served before" not in ended.output
    assert "version" not in page.answered()
    put_back(page)


def test_without_it_container_and_keys_are_gone_and_conversations_stay(page: Page) -> None:
    before = page.asked("ask/before")["kept"]
    file = page.bench.folder / "fleet.yaml"
    text = file.read_text()
    declared = yaml.safe_load(text)
    del declared["gateway"]["chat"]
    file.write_text(yaml.safe_dump(declared))
    ended = page.up()
    assert f"accounts and conversations stay in {DATA}" in ended.output
    left = page.bench.sh(f"docker ps -aq --filter name={NAME}; ls -d {FOLDER} 2>/dev/null", check=False)
    assert left == ""
    assert page.bench.sh(f"cat {DATA}/conversations").splitlines() == before
    assert page.bench.sh(f"stat -c '%a %u' {DATA}") == f"700 {CHAT_USER}"
    again = page.bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output
    # One that ends as it starts has nothing to come back to, and is stopped; the next comes to what people wrote.
    file.write_text(text)
    page.declare(page.ends)
    ended = page.bench.up("--yes")
    assert ended.code == 1, ended.output
    assert "what served before" not in ended.output
    assert page.bench.sh(f"docker inspect -f '{{{{.State.Status}}}}' {NAME}") == "exited"
    page.declare(page.serves)
    page.up()
    assert page.asked("ask/last")["kept"] == [*before, "last"]
