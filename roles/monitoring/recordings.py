"""What Prometheus works out of figures, and records under names of its own. Values; no host is asked.

`instance` is a server as `RIG.INSTANCE`, or a rig for what is of its host. Rates are over five minutes, so that a
scrape every 30 seconds gives ten figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from llamaherd.plan import MonitoredHost, MonitoredServer

BUSY = 0.1
"""Seconds of writing in a second, from which on a speed says something."""
UNSEEN = "2d"
"""How long ago a look may be that says whether a rig has drifted."""


class Recording(NamedTuple):
    """A figure under a name of its own, for dashboards and alerts; `labels` are added to it."""

    record: str
    expr: str
    labels: tuple[tuple[str, str], ...] = ()


def _rate(metric: str, over: str = "5m") -> str:
    return f"rate({metric}[{over}])"


def unanswered(*labels: str) -> str:
    """What of all that is asked does not answer: of a group, nothing that answers for one of its models."""
    alone, grouped = (f"up{{{','.join((*labels, group))}}}" for group in ('group=""', 'group!=""'))
    down = f"max by (job, rig, group) ({grouped}) == 0"
    return f'{alone} == 0 or label_replace({down}, "instance", "$1", "group", "(.+)")'


_BY = "sum by (rig, instance, model, engine)"
RECORDINGS = (
    Recording(
        "llm:decode_tokens_per_second:rate5m",
        f"{_rate('llamacpp:tokens_predicted_total')} / ({_rate('llamacpp:tokens_predicted_seconds_total')} > {BUSY})"
        f" or {_BY} ({_rate('vllm:inter_token_latency_seconds_count')})"
        f" / ({_BY} ({_rate('vllm:inter_token_latency_seconds_sum')}) > {BUSY})",
    ),
    Recording(
        "llm:prefill_tokens_per_second:rate5m",
        f"{_rate('llamacpp:prompt_tokens_total')} / ({_rate('llamacpp:prompt_seconds_total')} > {BUSY})",
    ),
    Recording(
        "llm:drafts_accepted:ratio30m",
        f"{_rate('llamacpp:spec_decode_num_accepted_tokens_total', '30m')}"
        f" / ({_rate('llamacpp:spec_decode_num_draft_tokens_total', '30m')} > 0)",
    ),
    Recording("llm:requests:processing", f"llamacpp:requests_processing or {_BY} (vllm:num_requests_running)"),
    Recording("llm:requests:waiting", f"llamacpp:requests_deferred or {_BY} (vllm:num_requests_waiting)"),
)
"""Engines' figures by one name each. llama-server's own rates are reset by whoever asks: these are of its counters."""


def in_turn(servers: Sequence[MonitoredServer]) -> Iterator[Recording]:
    """Which models of groups are loaded, where there are groups."""
    if any(server.group for server in servers):
        yield Recording("llm:model:loaded", 'up{job="server",group!=""}')


def expected(servers: Sequence[MonitoredServer]) -> Iterator[Recording]:
    """What owners expect of their servers, what was measured of them, and below what they are too slow."""
    for server in servers:
        labels = (("rig", server.rig), ("instance", server.name))
        known = {"expected": server.decode, "measured": server.measured, "floor": server.floor}
        for name, speed in known.items():
            if speed is not None:
                yield Recording(f"llm:decode_tokens_per_second:{name}", f"vector({speed:g})", labels)


def declared(hosts: Sequence[MonitoredHost]) -> Iterator[Recording]:
    """How many GPUs there must be, and what they are held to: each limit with the labels of its GPU's own figure."""
    for host in hosts:
        if host.gpus:
            yield Recording("llamaherd:gpus:declared", f"vector({host.gpus})", (("rig", host.rig),))
    limits = [
        f'0 * llamaherd_gpu_power_limit_watts{{rig="{host.rig}",{gpu.label}="{gpu.value}"}} + {gpu.limit}'
        for host in hosts
        for gpu in host.limits
    ]
    if limits:
        yield Recording("llamaherd:gpu_power_limit_watts:declared", " or ".join(limits))


def looks(hosts: Sequence[MonitoredHost]) -> Iterator[Recording]:
    """What `herd diff --tell` has said of rigs, and of which it must say something.

    The exporter that tells it is another rig's: Prometheus calls the rig that a figure is of `exported_rig`.
    """
    for name, figure in (
        ("llamaherd:drift:changes", "llamaherd_diff_drift_changes"),
        ("llamaherd:inventory:changes", "llamaherd_diff_inventory_changes"),
        ("llamaherd:drift:seen_seconds", f"last_over_time(llamaherd_diff_seen_seconds[{UNSEEN}])"),
    ):
        yield Recording(name, f'max by (rig) (label_replace({figure}, "rig", "$1", "exported_rig", "(.+)"))')
    for host in hosts:
        yield Recording("llamaherd:drift:expected", "vector(1)", (("rig", host.rig),))
