"""A change that does not serve is rolled back, and the same is not tried again."""

import pytest

from tests.box.bench import Bench
from tests.box.changes import BAD, comes_back


@pytest.mark.parametrize("case", ["it is healthy, and answers no prompt", "a container that does not load"])
def test_what_served_comes_back(bench: Bench, case: str) -> None:
    comes_back(bench, BAD[case])
