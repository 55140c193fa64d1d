"""Set up all tests: their tiers, how hypothesis searches, and which signals child processes receive.

Hypothesis takes the same examples for the same code, so that a red run is about the change at hand.
LLAMAHERD_SEARCH=20 searches twenty times as far, at random.
"""

import gc
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

from tests.support import sample, tiers

# Keep compiled modules: without them, each worker compiles all tests (12 s), and each process of a test its modules.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

SEARCH = int(os.environ.get("LLAMAHERD_SEARCH", "0"))
FEW = 25
"""Examples of a law where hypothesis does not search: a quarter of what it takes by itself."""
# How long an example takes depends on how busy the machine is.
TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", TIMELESS, derandomize=True, max_examples=FEW)
settings.register_profile("search", TIMELESS, max_examples=100 * max(SEARCH, 1))
settings.load_profile("search" if SEARCH else "steady")

# A shell ignores Ctrl-C in what it starts beside itself, and nohup a hang-up; a program inherits that, and tests send
# both to what they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

BOX = Path(__file__).parent / "box"

# What collecting tests makes stays for the whole run. The garbage collector would walk it again and again.
gc.disable()
gc.set_threshold(50_000)  # as `herd` does


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Have the garbage collector work again, and leave out what stays."""
    gc.freeze()
    gc.enable()


class Audit:
    """Records what a pure test starts. An audit hook cannot be removed, so there is one for the whole run."""

    def __init__(self) -> None:
        self.pure = False
        self.started: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse an event of `tiers.EVENTS` while a pure test runs."""
        if self.pure and event in tiers.EVENTS:
            self.started.append(f"{event}{arguments!r:.200}")
            raise RuntimeError(f"a pure test must not start, connect or wait: {self.started[-1]}")

    def sleep(self, seconds: float) -> None:
        """Stand in for `time.sleep`, of which audit hooks hear only since Python 3.13."""
        self("time.sleep", (seconds,))


AUDIT = Audit()


@pytest.fixture
def starts_processes() -> None:
    """Put a test into the process tier whose subject, not the test itself, starts a process, connects or waits."""


@pytest.fixture(autouse=True)
def no_shared_connections(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each command log in for itself: an `ssh` of a test's own shares nothing. Tests on the box do as users do."""
    if not request.path.is_relative_to(BOX):
        monkeypatch.setenv("HERD_SSH_PERSIST", "0")


@cache
def _place(fixture: Callable[..., object]) -> tuple[Path, str]:
    return Path(inspect.getfile(fixture)), fixture.__name__


def tier(item: pytest.Item) -> str:
    """Return the tier of a test: `box`, `process` or `pure`."""
    if item.path.is_relative_to(BOX):
        return "box"
    if not isinstance(item, pytest.Function):
        return "pure"
    return _tier_of_function(item)


TIERS: dict[tuple[Path, type | None, str | None], str] = {}


def _tier_of_function(item: pytest.Function) -> str:
    """Return the tier of a test function, which all of its parameters share."""
    key = (item.path, item.cls, item.originalname)
    if key not in TIERS:
        TIERS[key] = _read_tier(item)
    return TIERS[key]


def _read_tier(item: pytest.Function) -> str:
    if starts_processes.__name__ in item.fixturenames:
        return "process"
    places = {(item.path, item.cls.__name__ if item.cls else item.originalname)}
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        places |= {_place(inspect.unwrap(definition.func)) for definition in definitions}
    ours = (place for place in places if place[0].is_relative_to(tiers.ROOT / "tests"))
    return "process" if any(tiers.starts(*place) for place in ours) else "pure"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test with its tier."""
    item.add_marker(tier(item))


THREADS = vars(threading)
LOCK = "_allocate_lock"
REAL, LOCKS = THREADS[LOCK], {"tests": THREADS[LOCK]}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Give a worker of pytest-xdist real locks between tests: it waits for the next test by them.

    pyinfra's command line has gevent replace them in the whole process as soon as a test imports it.
    """
    THREADS[LOCK] = LOCKS["tests"]
    try:
        return (yield)
    finally:
        LOCKS["tests"], THREADS[LOCK] = THREADS[LOCK], REAL


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a pure test that starts a process, opens a socket or sleeps, even where it catches the error."""
    if item.get_closest_marker("pure") is None:
        yield
        return
    AUDIT.pure, AUDIT.started = True, []
    try:
        with patch("time.sleep", AUDIT.sleep):
            yield
    finally:
        AUDIT.pure = False
    if AUDIT.started:
        pytest.fail(f"{item.nodeid} is pure, but: {AUDIT.started[0]}")


def pytest_report_header() -> str:
    """Print the seed of the samples, which is made before workers of pytest-xdist start."""
    return sample.header()
