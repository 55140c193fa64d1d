"""The one fact: all that a plan needs to know of its host, in one round trip."""

from __future__ import annotations

from pyinfra.api import FactBase, StringCommand
from pyinfra.api.exceptions import FactProcessError

from llamaherd.observe import Seen, answer


class Observed(FactBase[Seen | None]):
    """Runs the script that is given as `_stdin`, and reads what it prints."""

    def command(self) -> StringCommand:
        """A shell that reads its script from stdin: a script is no argument that a process list would show."""
        return StringCommand("sh", "-s")

    def process(self, output: list[str]) -> Seen | None:
        """A host that answers nonsense fails alone, not the whole run."""
        try:
            return answer(output)
        except ValueError as error:
            raise FactProcessError(str(error)) from error
