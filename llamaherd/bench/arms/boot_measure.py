"""A server measured on its host as it serves, before a boot or after it: as a unit of its own, start after start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from secrets import token_hex

from llamaherd.bench.arms.alone import at_port
from llamaherd.bench.arms.boots import CellReading, ServerReading, boot_rows, known, read_cells
from llamaherd.bench.arms.cells import conditions
from llamaherd.bench.arms.gate import GateRow, gate_cells
from llamaherd.bench.arms.host import ArmsHost
from llamaherd.bench.arms.units import Arm, arms_input, arms_port
from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.keys import read_key
from llamaherd.inventory.schema import Connect
from llamaherd.plan import GatePlan, InstancePlan, Plan
from llamaherd.text.units import show_seconds


@dataclass(frozen=True)
class BootSide:
    """A server of `plan`, which is what its host serves, on one side of a boot. `say` tells people how it goes.

    `aside` keeps new requests off it meanwhile.
    """

    plan: Plan
    name: str
    gate: GatePlan
    connect: Connect
    who: str
    say: Callable[[str], None]
    aside: Callable[[], AbstractContextManager[object]]

    def before(self) -> ServerReading:
        """How fast it is now. Raises UserError, UnreadableKeyError."""
        cells = self._cells(lambda _: False)
        if not cells:
            raise UserError("none of its answers counts", "`herd bench` says why")
        return ServerReading(instance=self.name, spec=self._serves.spec, cells=cells)

    def since(self, before: ServerReading) -> tuple[GateRow, ...]:
        """How fast it is now beside before. Raises UserError, UnreadableKeyError."""
        many = len(before.cells)
        cells = self._cells(lambda found: known(boot_rows(before, found, self.gate), many))
        return boot_rows(before, cells, self.gate, spent=True)

    @property
    def _serves(self) -> InstancePlan:
        return next(each for each in self.plan.instances if each.name == self.name)

    def _cells(self, enough: Callable[[tuple[CellReading, ...]], bool]) -> tuple[CellReading, ...]:
        serves, seconds = self._serves, self.gate.seconds / 2
        arm = Arm("A", f"what serves as {self.name}", at_port(serves, self.name, arms_port(self.plan, self.name)))
        asked = conditions(gate_cells(self.gate), serves.context // max(1, serves.endpoint.streams))
        self.say(
            f"{self.name}: it is measured for {show_seconds(seconds)} at most; "
            "it is stopped meanwhile, and comes back whatever ends this"
        )
        key = read_key(serves.endpoint.key) if serves.endpoint.key else None
        given = arms_input((arm,), (serves,), seconds, self.who)
        with ArmsHost(self.connect, given, {"A": arm}, {"A": key}, token_hex(6), self.aside()) as host:
            return read_cells(host, asked, seconds, enough)
