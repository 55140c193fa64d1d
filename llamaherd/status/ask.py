"""Hosts, asked what they do now: one connection each and each time, all of them at once, and none waits for another."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, wait
from itertools import chain
from pathlib import Path
from threading import BoundedSemaphore, Thread

from llamaherd.bench.results.expected import decode_of
from llamaherd.bench.results.store import last_result
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.status import HostStatus, StatusInput
from llamaherd.onhost.status_probe import ServerInput
from llamaherd.plan import Endpoint, Plan
from llamaherd.plan.loaded import instances_of
from llamaherd.status.judged import rig_now
from llamaherd.status.now import RigNow, Speed
from llamaherd.status.told import checked_status

PATIENCE = 15
"""Seconds that hosts are waited for: a look takes little more than one, and twelve where everything on it hangs."""
_AT_ONCE = 64
"""Hosts that are asked at the same time: so many may hang before another one has to wait for them."""
_SECONDS = 30
"""After which one is given up that has not answered."""


class Asking:
    """Hosts that are asked again and again. One that is late is not waited for a second time."""

    def __init__(
        self,
        planned: Mapping[str, tuple[Rig, Plan]],
        measured: Mapping[tuple[str, str], Speed],
        patience: float = PATIENCE,
    ) -> None:
        self._planned, self._measured, self._patience = planned, measured, patience
        self._under_way: dict[str, Future[RigNow]] = {}
        self._turns = BoundedSemaphore(_AT_ONCE)

    def ask(self) -> tuple[RigNow, ...]:
        """What all of them do now, in their order. Who does not answer in time is away."""
        begun = [name for name in self._planned if name not in self._under_way]
        self._under_way |= {name: self._begin(name) for name in begun}
        wait([self._under_way[name] for name in begun], self._patience)
        return tuple(self._found(name) for name in self._planned)

    def _begin(self, name: str) -> Future[RigNow]:
        """One that is asked, by a thread that nobody waits for when the program ends."""
        answer: Future[RigNow] = Future()
        Thread(target=self._ask, args=(name, answer), daemon=True).start()
        return answer

    def _ask(self, name: str, answer: Future[RigNow]) -> None:
        rig, plan = self._planned[name]
        measured = {instance: speed for (of, instance), speed in self._measured.items() if of == name}
        try:
            with self._turns:
                given = status_input(plan)
                found = query_verb(Remote(rig.connect), "llamaherd.status.inspect", given, HostStatus, _SECONDS)
            told = checked_status(found, [instance.service for instance in plan.instances])
            answer.set_result(rig_now(plan, told, measured))
        except RemoteError as error:
            answer.set_result(RigNow(name, away=f"{error.message}; {error.help}"))
        except BaseException as error:
            answer.set_exception(error)

    def _found(self, name: str) -> RigNow:
        if not self._under_way[name].done():
            late = f"it has not answered within {self._patience:g} s; look at the host's load and at the connection"
            return RigNow(name, away=late)
        return self._under_way.pop(name).result()


def status_input(plan: Plan) -> StatusInput:
    """Return the input of a query of a host's state: its servers, GPUs and gateway. It contains no secret."""
    servers = tuple(
        ServerInput(
            name=instance.service,
            backend=instance.backend,
            host=instance.endpoint.local_address,
            port=instance.endpoint.port,
            health=instance.endpoint.health_path,
            figures=_figures(instance.endpoint),
            in_turn=tuple(instance.endpoint.models) if instance.endpoint.swaps else (),
            models=instance.endpoint.models_path,
            key=str(instance.key_file) if instance.key_file else None,
            one_process=instance.server.one_process,
        )
        for instance in plan.instances
    )
    return StatusInput(servers, gpus=bool(plan.cards), gateway=plan.gateway is not None)


def _figures(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """Return the paths of its slots and metrics; of a server of several models, a pair for each model."""
    paths = ("/slots", endpoint.metrics_path)
    every = ((endpoint.of_model(paths[0], model), endpoint.of_model(paths[1], model)) for model in endpoint.models)
    return tuple(dict.fromkeys(every))


def measured_speeds(planned: Mapping[str, tuple[Rig, Plan]], results: Path) -> dict[tuple[str, str], Speed]:
    """What was last measured of each instance, by rig and instance, where anything was."""
    found: dict[tuple[str, str], Speed] = {}
    for name, (_, plan) in planned.items():
        for instance in chain(*map(instances_of, plan.instances)):
            last = last_result(results, name, instance.name, results)
            decode = decode_of(last) if last else None
            if last and decode:
                found[name, instance.name] = Speed(decode.value, decode.low, decode.high, last.began, decode.counted)
    return found
