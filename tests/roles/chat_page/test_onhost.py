"""The chat page's verbs on a played host: what was healthy last serves again where the new version is not."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from llamaherd.layout import CHAT, CHAT_CONTAINER, CHAT_DATA, WRITTEN
from llamaherd.onhost.clients import DOCKER_LOG
from llamaherd.onhost.document import Secret, decode, dump, parse_document
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import NoInput, find_verb
from roles.chat_page.onhost import BEFORE, COMPOSE, LOG, SECRET, UNTRIED, ApplyInput, apply, remove
from tests.support.played_host import File, Running
from tests.support.service_host import ServiceHost, killed_everywhere

KEY, KEY_FILE, NUMBER = "sk-a-canary", str(CHAT / "key"), "2010000007"


@dataclass
class ChatHost(ServiceHost):
    """A host with Docker. A Compose file is the version that it starts."""

    ill: set[str] = field(default_factory=set)
    """Versions that do not become healthy."""
    images: set[str] = field(default_factory=set)
    pulls: bool = True

    def run(self, argv: Sequence[str], **more: Any) -> Ended:
        """Play Docker."""
        if argv[0] != "docker":
            return super().run(argv, **more)
        self.done.append([*argv])
        for begins, ended in self.ends.items():
            if " ".join(argv).startswith(begins):
                return ended
        match argv[1:]:
            case ["image", "inspect", image]:
                return Ended(0 if image in self.images else 1)
            case ["pull", image]:
                self.images |= {image} if self.pulls else set()
                return Ended(0) if self.pulls else Ended(1, "", f"a\nb\nc\n{'no such manifest':<400}\n")
            case ["logs", *_]:
                return Ended(0, "out of memory\n")
            case ["compose", *words] if "up" in words:
                return self._up()
        return super().run(argv, **more)

    def _up(self) -> Ended:
        self._step()
        version = self.read(COMPOSE) or ""
        self.time += 7
        ill = version in self.ill
        self.containers[CHAT_CONTAINER] = Running("exited" if ill else "running", version)
        return Ended(1 if ill else 0, f"Container {CHAT_CONTAINER}\n")

    def _docker(self, words: list[str]) -> Ended:
        if words[0] == "compose" and "stop" in words:
            self._step()
            self.containers[CHAT_CONTAINER].state = "exited"
            return Ended(0)
        return super()._docker(words)

    def serves(self) -> str:
        """Return the version that serves; empty where none does."""
        found = self.containers.get(CHAT_CONTAINER)
        return found.spec if found and found.state == "running" else ""


def given(version: str = "new") -> ApplyInput:
    """Return an input."""
    key = WrittenFile(KEY_FILE, Secret(KEY), 0o400, NUMBER)
    return ApplyInput("image@sha256:1", NUMBER, (key,), WrittenFile(COMPOSE, Secret(version), 0o644, "root"), 300)


def serving(**more: Any) -> ChatHost:
    """Return a host whose page serves by the version `old`."""
    host = ChatHost({})
    apply(given("old"), host)
    host.done.clear()
    for name, value in more.items():
        setattr(host, name, value)
    return host


def settled(host: ChatHost) -> bool:
    """Return whether the next run finds nothing that was cut off."""
    return not host.entry(UNTRIED) and not host.entry(BEFORE)


def test_a_first_page_gets_its_image_its_folders_and_a_secret_of_its_host() -> None:
    host = ChatHost({})
    document = parse_document(dump(given()).encode())
    find_verb("chat_page.apply").run(decode(ApplyInput, document), host)
    assert host.serves() == "new"
    assert host.index("pull") < host.index("install") < host.index("compose")
    assert host.has_done("install", "0700", NUMBER, str(CHAT_DATA))
    assert (host.files[SECRET].mode, host.files[SECRET].owner) == (0o400, NUMBER)
    assert len(base64.b64decode(host.files[SECRET].text)) == 32
    assert host.files[KEY_FILE] == File(KEY, 0o400, NUMBER)
    assert settled(host)
    assert (host.read(f"{WRITTEN}/chat") or "").endswith(f"\t{KEY_FILE}\n")
    assert host.read(LOG) == f"Container {CHAT_CONTAINER}\n"
    hidden = (KEY, host.files[SECRET].text)
    assert not [each for each in hidden if each in f"{host.done}{host.log}{given()!r}"]


def test_a_second_version_keeps_the_secret_and_pulls_nothing() -> None:
    host = serving()
    secret = host.read(SECRET)
    apply(given(), host)
    assert (host.serves(), host.read(SECRET)) == ("new", secret)
    assert not host.has_done("pull")


def test_an_empty_secret_is_made_again() -> None:
    host = serving()
    host.files[SECRET] = File("")
    apply(given(), host)
    assert host.read(SECRET)


def test_an_image_that_cannot_be_fetched_changes_nothing() -> None:
    host = serving(images=set(), pulls=False)
    before = dict(host.files)
    with pytest.raises(FailedError, match="the image of the chat page cannot be fetched; what ran before") as caught:
        apply(given(), host)
    assert [len(each) for each in caught.value.log] == [1, 1, 300]
    assert "no such manifest" in host.files[DOCKER_LOG].text
    before[DOCKER_LOG] = host.files[DOCKER_LOG]
    assert (host.files, host.serves()) == (before, "old")


@pytest.mark.parametrize(("fails", "why"), [("systemctl", "Docker does not start"), ("install", "cannot create")])
def test_a_host_that_is_not_ready_is_left_as_it_is(fails: str, why: str) -> None:
    host = serving(ends={fails: Ended(1, "", "it is masked\n")})
    with pytest.raises(FailedError, match=why):
        apply(given(), host)
    assert (host.serves(), host.read(COMPOSE)) == ("old", "old")


def test_a_version_that_is_not_healthy_is_rolled_back() -> None:
    host = serving(ill={"new"})
    with pytest.raises(FailedError) as caught:
        apply(given(), host)
    assert caught.value.message == (
        "the chat page is not healthy after 7 s of 300; its last lines are above, all of them in: "
        "docker logs llamaherd-chat; what served before does again"
    )
    assert caught.value.log == (f"Container {CHAT_CONTAINER}", "out of memory")
    assert (host.serves(), host.read(COMPOSE)) == ("old", "old")
    assert settled(host)
    assert host.entry(f"{WRITTEN}/chat"), "the key stays as it was written"


def test_a_first_version_that_is_not_healthy_is_stopped() -> None:
    host = ChatHost({}, ill={"new"})
    with pytest.raises(FailedError) as caught:
        apply(given(), host)
    assert "what served before" not in caught.value.message
    assert host.serves() == ""
    assert host.has_done("compose", "stop")
    assert host.entry(UNTRIED)
    apply(given("third"), host)
    assert (host.serves(), settled(host)) == ("third", True)


def test_a_version_before_that_is_not_healthy_either_is_reported_and_kept() -> None:
    host = serving(ill={"new", "old"})
    with pytest.raises(FailedError, match="what served before is not healthy either"):
        apply(given(), host)
    assert (host.read(COMPOSE), host.read(BEFORE)) == ("old", "old")
    host.ill = {"new"}
    with pytest.raises(FailedError, match="what served before does again"):
        apply(given(), host)
    assert host.serves() == "old"


def test_a_killed_run_is_completed_by_the_next() -> None:
    for make in (serving, lambda: ChatHost({})):
        hosts = killed_everywhere(make, lambda host: apply(given(), host))
        assert len(hosts) > 8
        for host in hosts:
            assert (host.serves(), settled(host)) == ("new", True)
            assert host.entry(f"{WRITTEN}/chat")


def test_after_a_kill_what_was_healthy_last_serves() -> None:
    def run(host: ChatHost) -> None:
        with pytest.raises(FailedError):
            apply(given(), host)

    hosts = killed_everywhere(lambda: serving(ill={"new"}), run)
    assert len(hosts) > 8
    for host in hosts:
        assert (host.serves(), host.read(COMPOSE)) == ("old", "old")
        assert settled(host)


@pytest.mark.parametrize("full", [UNTRIED, KEY_FILE])
def test_a_full_disk_leaves_the_page_that_serves(full: str) -> None:
    host = serving(full=full)
    with pytest.raises(FailedError, match=f"cannot write {full}: No space left on device") as caught:
        apply(given(), host)
    assert KEY not in f"{caught.value}{caught.value.fix}"
    assert host.serves() == "old"
    host.full = ""
    apply(given(), host)
    assert (host.serves(), settled(host)) == ("new", True)


def test_a_log_that_cannot_be_written_stops_no_page() -> None:
    host = serving(full=LOG)
    apply(given(), host)
    assert host.serves() == "new"


def test_a_removal_leaves_what_users_wrote_and_a_second_one_does_nothing() -> None:
    host = serving()
    host.files[f"{CHAT_DATA}/conversations"] = File("hello")
    find_verb("chat_page.remove").run(decode(NoInput, {}), host)
    assert host.index("stop") < host.index("rm"), "it ends by itself"
    assert CHAT_CONTAINER not in host.containers
    assert host.log == [f"accounts and conversations stay in {CHAT_DATA}"]
    left = {f"{CHAT_DATA}/conversations", f"{WRITTEN}/.secret", LOG, DOCKER_LOG}
    assert host.files.keys() == left
    host.done.clear()
    remove(NoInput(), host)
    assert host.files.keys() == left
    assert not host.has_done("rm")


def test_a_removal_without_conversations_reports_none() -> None:
    host = serving()
    host.folders.discard(str(CHAT_DATA))
    remove(NoInput(), host)
    assert host.log == []


def test_a_container_that_cannot_be_removed_is_reported() -> None:
    host = serving(ends={"docker rm": Ended(1, "", "the daemon hangs\n")})
    with pytest.raises(FailedError, match=f"cannot remove the container {CHAT_CONTAINER}") as caught:
        remove(NoInput(), host)
    assert caught.value.log == ("the daemon hangs",)
    assert host.entry(COMPOSE), "the next run finds by it what is left"


def test_a_killed_removal_is_completed_by_the_next() -> None:
    for host in killed_everywhere(serving, lambda host: remove(NoInput(), host)):
        assert not [each for each in host.files if each.startswith(f"{CHAT}/")]
        assert CHAT_CONTAINER not in host.containers
