"""A share process for the tests of lending."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lending import BODY, Lending, begun, ended, prepared


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return prepared(tmp_path, {"UD/x.gguf": BODY})


@pytest.fixture(scope="module")
def lending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lending]:
    """A share process for all tests that only ask."""
    with ended(begun(prepared(tmp_path_factory.mktemp("lending"), {"UD/x.gguf": BODY}))) as lending:
        yield lending


@pytest.fixture
def own(root: Path) -> Iterator[Lending]:
    """A share process for one test, which may change its store or end it."""
    with ended(begun(root)) as lending:
        yield lending
