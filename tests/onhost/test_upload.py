"""Uploads on a played host: they resume, one run at a time sends a file, and no run waits for ever."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from llamaherd.onhost.store import ADMIT_SECONDS, MANIFEST, ReceiveInput, manifest_line, receive
from llamaherd.onhost.system import Entry, FailedError
from tests.support.played_host import File, PlayedPartialFile
from tests.support.service_host import ServiceHost, killed_everywhere

SHA256 = "5" * 64
PATH = f"/var/lib/llamaherd/incoming/{SHA256}"
PART = f"{PATH}.part"
FOLDER = "/var/lib/llamaherd/models/local/5555"
MODEL = f"{FOLDER}/a model.gguf"
CONTENT = "0123456789" * 1_000_000
GIVEN = ReceiveInput(PATH, len(CONTENT), ("/elsewhere/b.gguf", MODEL), standing=150, total=7200)
FIX = "end the other run, and run the command again: the upload resumes"


def pieces(first: object) -> Iterator[str]:
    """Yield what the controller sends from this byte on."""
    assert isinstance(first, int)
    for at in range(first, len(CONTENT), 1_000_000):
        yield CONTENT[at : at + 1_000_000]


@dataclass
class UploadHost(ServiceHost):
    """A host to which the controller sends the file. What other runs do happens while this run waits."""

    meanwhile: Callable[[int], object] = lambda _: None
    """Is called with the seconds that this run has waited. If it returns a true value, the controller ends."""
    seconds_waited: int = 0

    def next_line(self, seconds: float) -> str | None:
        """Wait, as long as the controller sends no line and does not end."""
        self.time += seconds
        self.seconds_waited += 1
        ends = self.meanwhile(self.seconds_waited)
        return "" if ends else None


def played(files: dict[str, str] | None = None, *, is_held: bool = False) -> UploadHost:
    """Return a host with files, and a part that another run may send."""
    host = UploadHost({}, arriving=pieces, holders={PART: ""} if is_held else {})
    host.files.update({path: File(text) for path, text in (files or {}).items()})
    return host


def failure(host: UploadHost, given: ReceiveInput = GIVEN) -> tuple[str, str]:
    """Return why the verb fails, and what to do about it."""
    with pytest.raises(FailedError) as raised:
        receive(given, host)
    return raised.value.message, raised.value.fix


def arrived(host: UploadHost) -> bool:
    """Return whether the file is there, and nothing else, with no lock held."""
    return {path: file.text for path, file in host.files.items()} == {PATH: CONTENT} and not host.held


# --- what is received ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("have", [None, 0, 3, 5_000_000, len(CONTENT)])
def test_an_upload_resumes_at_its_first_missing_byte(have: int | None) -> None:
    host = played({} if have is None else {PART: CONTENT[:have]})
    receive(GIVEN, host)
    assert host.values == [have or 0]
    assert arrived(host)
    assert not host.log


def test_a_part_that_is_larger_than_the_file_is_discarded() -> None:
    host = played({PART: f"{CONTENT}x"})
    receive(GIVEN, host)
    assert host.values == [0]
    assert arrived(host)


def test_an_empty_file_arrives() -> None:
    host = played()
    host.arriving = lambda _: ()
    receive(replace(GIVEN, size=0), host)
    assert (host.values, host.files[PATH].text) == ([0], "")


def test_a_file_that_has_arrived_is_not_sent_again() -> None:
    """The store admits it only by its hash."""
    host = played({PATH: "x" * GIVEN.size, PART: "a"})
    receive(GIVEN, host)
    assert (host.values, [*host.files]) == ([], [PATH])


@pytest.mark.parametrize("there", ["another size", "a folder", "a link"])
def test_something_else_at_the_place_of_the_file_is_replaced(there: str) -> None:
    host = played()
    if there == "another size":
        host.files[PATH] = File("x")
    elif there == "a folder":
        host.folders.add(PATH)
    else:
        host.links[PATH] = "/elsewhere"
    receive(GIVEN, host)
    assert (host.values, host.files[PATH].text == CONTENT) == ([0], True)


def test_a_connection_that_ends_leaves_a_part() -> None:
    host = played()
    host.arriving = lambda _: iter([CONTENT[:7]])
    assert failure(host) == (
        f"only 7 of 10000000 bytes of {PATH} arrived",
        "run the command again: the upload resumes",
    )
    assert host.files[PART].text == CONTENT[:7]
    host.arriving = pieces
    receive(GIVEN, host)
    assert host.values == [0, 7]
    assert arrived(host)


def test_a_run_that_is_killed_at_any_step_resumes() -> None:
    hosts = killed_everywhere(played, lambda host: receive(GIVEN, host))
    assert len(hosts) == 12  # a part is made, ten pieces arrive, and it is renamed
    assert all(arrived(host) for host in hosts)
    assert [host.values[-1] for host in hosts] == [0, *range(0, GIVEN.size + 1, 1_000_000)]
    hosts = killed_everywhere(lambda: played({PATH: CONTENT}), lambda host: receive(GIVEN, host))
    assert len(hosts) == 2
    assert all(arrived(host) and not host.values for host in hosts)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_cannot_be_written_is_named(number: int) -> None:
    def full(_: object) -> Iterator[str]:
        yield "a"
        raise OSError(number, "it is so", PART)

    host = played()
    host.arriving = full
    message, fix = failure(host)
    assert message == f"cannot write {PART}: it is so"
    assert fix.endswith("then run again")
    assert host.files[PART].text == "a"
    assert not host.held


# --- other runs ----------------------------------------------------------------------------------------------


def test_a_file_that_another_run_sends_is_not_sent_again() -> None:
    host = played({PART: CONTENT[:3_000_000]}, is_held=True)

    def other(second: int) -> None:
        host.files[PART].text += "x" * 100_000
        if second == 25:
            host.rename(PART, PATH)

    host.meanwhile = other
    receive(replace(GIVEN, size=5_500_000), host)
    assert host.log == [
        f"waiting for another run that sends this file: {megabytes} of 5 MB have arrived" for megabytes in (3, 4, 5)
    ]
    assert host.values == []


def test_a_file_that_another_run_gave_up_is_resumed() -> None:
    host = played({PART: CONTENT[:10]}, is_held=True)
    host.meanwhile = lambda second: host.holders.clear() if second == 3 else None
    receive(GIVEN, host)
    assert host.values == [10]
    assert arrived(host)


def test_a_file_that_another_run_sent_while_this_run_took_the_lock_is_not_sent_again() -> None:
    class Host(UploadHost):
        def entry(self, path: str) -> Entry | None:
            if path == PATH:
                self.files.setdefault(PATH, File(CONTENT))
            return super().entry(path)

    host = Host({})
    receive(GIVEN, host)
    assert host.values == []
    assert arrived(host)


def test_a_part_that_is_renamed_while_its_lock_is_taken_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    host = played({PART: "x"})
    take = PlayedPartialFile.take

    def take_late(file: PlayedPartialFile) -> bool:
        if file.file.text == "x":
            host.rename(PART, "/model")
        return take(file)

    monkeypatch.setattr(PlayedPartialFile, "take", take_late)
    receive(GIVEN, host)
    assert host.values == [0]
    assert (host.files.pop("/model").text, arrived(host)) == ("x", True)


def test_a_run_that_admits_the_file_within_seconds_has_sent_it() -> None:
    host = played({PART: CONTENT}, is_held=True)

    def other(second: int) -> None:
        if second == 2:
            host.files["/moved"] = host.files.pop(PART)
        elif second == 2 + ADMIT_SECONDS:
            host.files[MODEL] = host.files.pop("/moved")

    host.meanwhile = other
    receive(GIVEN, host)
    assert host.values == []
    assert [*host.files] == [MODEL]


def test_a_file_that_was_sent_and_is_gone_is_sent_again() -> None:
    host = played({PART: "x"}, is_held=True)

    def other(second: int) -> None:
        if second == 2:
            host.rename(PART, "/model")
            host.holders.clear()

    host.meanwhile = other
    receive(GIVEN, host)
    assert host.seconds_waited == 2 + ADMIT_SECONDS
    assert host.values == [0]
    assert (host.files.pop("/model").text, arrived(host)) == ("x", True)


def test_a_run_that_sends_nothing_is_given_up() -> None:
    host = played({PART: "x" * 10}, is_held=True)
    assert failure(host) == (
        "another run sends this file to this host, and has sent nothing for 150 s: 10 of 10000000 bytes have arrived",
        FIX,
    )
    assert 148 <= host.seconds_waited <= 151
    assert (host.files[PART].text, host.values) == ("x" * 10, [])


@pytest.mark.parametrize(("total", "limit"), [(7200, "2 h"), (86_400, "24 h"), (60, "60 s"), (7199, "7199 s")])
def test_a_run_that_sends_a_byte_a_second_is_given_up_at_the_total(total: int, limit: str) -> None:
    host = played({PART: ""}, is_held=True)

    def other(_: int) -> None:
        host.time += 30
        host.files[PART].text += "x"

    host.meanwhile = other
    given = replace(GIVEN, total=total)
    assert failure(host, given) == (f"another run has not sent this file to this host within {limit}", FIX)
    assert total <= host.time < total + 60


@pytest.mark.parametrize("where", ["waiting for its lock", "waiting for its admission"])
def test_a_controller_that_ends_waits_no_longer(where: str) -> None:
    host = played({PART: "x"}, is_held=True)
    if where == "waiting for its admission":
        host.meanwhile = lambda second: host.files.clear() if second == 1 else second == 3
    else:
        host.meanwhile = lambda second: second == 3
    assert failure(host)[0] == "the connection ended while another run sent this file"
    assert host.seconds_waited == 3
    assert not host.values


# --- files of the store --------------------------------------------------------------------------------------


def in_store(manifest: str | None = "", **entry: object) -> UploadHost:
    """Return a host whose store has the file, and a manifest: by default one that lists the file."""
    host = played({MODEL: CONTENT})
    if manifest is not None:
        line = manifest_line(host, FOLDER, "a model.gguf", SHA256)
        host.files[f"{FOLDER}/{MANIFEST}"] = File(manifest or f"{line}\n")
    for name, value in entry.items():
        setattr(host.files[MODEL], name, value)
    return host


@pytest.mark.parametrize("host", [in_store(), in_store(None)], ids=["listed", "not listed yet"])
def test_a_file_of_the_store_is_not_sent(host: UploadHost) -> None:
    receive(GIVEN, host)
    assert host.values == []
    assert PART not in host.files
    assert PATH not in host.files


@pytest.mark.parametrize(
    "host",
    [
        in_store("10000000\t0.000000000\t" + "6" * 64 + "\ta model.gguf\n"),
        in_store("9\t0.000000000\t" + SHA256 + "\ta model.gguf\n"),
        in_store(mode=0o666),
        in_store(owner="owner"),
        in_store(None, owner="owner"),
        in_store(None, text="cut off"),
    ],
    ids=["another hash", "another size", "its mode", "its owner", "its owner, not listed", "its size, not listed"],
)
def test_another_file_in_the_store_does_not_count(host: UploadHost) -> None:
    receive(GIVEN, host)
    assert host.values == [0]
    assert host.files[PATH].text == CONTENT


def test_a_link_in_the_store_does_not_count() -> None:
    host = in_store(None)
    host.rename(MODEL, "/model")
    host.links[MODEL] = "/model"
    receive(GIVEN, host)
    assert host.values == [0]
