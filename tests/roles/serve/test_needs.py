"""The memory that an instance needs on a host before it is started, from what the plan estimates."""

from __future__ import annotations

from llamaherd.onhost.servers import NeededGpu
from llamaherd.plan import Estimate, Holds
from roles.serve.transaction import gpu_needs, ram_need
from tests.support.rigs import gpu_rig, planned


def test_ram_that_is_not_certain_is_not_required() -> None:
    instance = planned(gpu_rig()).instances[0]

    def need(**known: object) -> int:
        estimate = Estimate(source="arithmetic", holds=()).model_copy(update=known)
        return ram_need(instance.model_copy(update={"memory": estimate}))

    assert need(resident=7) == 7
    assert need(resident=7, doubts=("perhaps",)) == need(resident=None) == 0
    assert ram_need(instance.model_copy(update={"memory": None})) == 0


def test_what_an_instance_needs_of_which_gpu() -> None:
    instance = planned(gpu_rig()).instances[0]
    (card,) = instance.server.cards
    holds = tuple(
        Holds(where=where, size=0, weights=5, kv=4, state=0, compute=3, draft=2, cuda=1) for where in (card.name, "RAM")
    )
    known = instance.model_copy(update={"memory": Estimate(source="arithmetic", holds=holds)})
    assert gpu_needs(known) == [NeededGpu(card.name, card.at, 15)]
    doubtful = known.model_copy(update={"memory": Estimate(source="arithmetic", holds=holds, doubts=("perhaps",))})
    assert gpu_needs(doubtful) == gpu_needs(instance.model_copy(update={"memory": None})) == []
