"""What the chat page inspects, on a played host."""

from __future__ import annotations

import pytest

from llamaherd.layout import CHAT
from llamaherd.onhost.system import TIMED_OUT, Ended, UnknownStateError
from llamaherd.onhost.verbs import NoInput
from roles.chat_page.onhost import Found, PageState, inspect
from tests.support.recording import InspectedHost


def host(printed: str = "", code: int = 0) -> InspectedHost:
    found = InspectedHost({}, ends={"docker inspect": Ended(code, printed)})
    found.folders.add(str(CHAT))
    return found


@pytest.mark.parametrize(
    ("printed", "page"),
    [
        ("running healthy ab 8080\n", PageState("running", "healthy", "ab", 8080)),
        ("running none ab many\n", None),
        ("running none\n", None),
        ("", None),
    ],
)
def test_its_container(printed: str, page: PageState | None) -> None:
    assert inspect(NoInput(), host(printed)) == Found(there=True, unsigned=True, page=page)


def test_its_files() -> None:
    played = host()
    played.write(f"{CHAT}/secret", "")
    assert inspect(NoInput(), played).unsigned
    played.write(f"{CHAT}/secret", "signs")
    played.write(f"{CHAT}/untried", "")
    assert inspect(NoInput(), played) == Found(there=True, untried=True)


def test_a_host_without_one_is_not_queried() -> None:
    played = InspectedHost({})
    assert inspect(NoInput(), played) == Found()
    assert played.done == []


def test_a_docker_that_hangs_is_unknown() -> None:
    with pytest.raises(UnknownStateError):
        inspect(NoInput(), host(code=TIMED_OUT))
