"""Monitoring's lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llamaherd.layout import EXPORTER_PORT
from llamaherd.plan import Estimate, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """What is watched, and who may ask."""
    made = plan.monitoring
    if made is None or not made.units:
        return
    lines = []
    if made.exporter:
        who = f", for {made.exporter.asker} alone" if made.exporter.asker else ""
        lines.append(f"figures of this host on {made.exporter.listen}:{EXPORTER_PORT}{who}")
    if made.watcher:
        hosts, servers = made.watcher.hosts, made.watcher.servers
        lines.append(f"Prometheus watches hosts: {', '.join(each.rig for each in hosts)}")
        lines += [f"Prometheus watches {each.name} at {each.address}:{each.port}" for each in servers]
    for number, line in enumerate(lines):
        yield f"  {'monitoring' if number == 0 else '':10} {line}"
