"""Prometheus' rules: the metrics that it records under names of its own, and the alerts on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from llamaherd.plan import MonitoredHost, MonitoredServer

BUSY = 0.1
"""Seconds of writing in a second, from which on a speed is meaningful."""
LONGEST_UNINSPECTED, _LONGEST_SECONDS = "2d", 2 * 86400
"""The longest time since the inspection that reports whether a rig has drifted, as Prometheus writes it, in seconds."""

_BY = "sum by (rig, instance, model, engine)"

LEAST_ACCEPTED = 0.4
"""Of drafted tokens; with fewer, drafting costs more than it brings."""

SOON = 4 * 86400
"""Seconds until a disk is full, from which on an alert fires."""

XIDS = ("48", "62", "64", "74", "79", "95", "119", "120")
"""Errors after which a GPU needs a reset: of nvidia_gpu_exporter's docs/METRICS.md, by NVIDIA's list. Those of
applications (13, 31, 43) and mere reports (63, 92) are not among them."""

STILL = "10m"
"""The time in which a server with requests computes no batch. At three tokens a second, a batch of 2,048 ends before
the alert fires."""

LONG = 60
"""Seconds that requests wait on average, from which on an alert fires."""

HOT = 88
"""°C, where GeForce cards are near what slows them down."""

ENDS = 14 * 86400
"""Seconds before a certificate expires, from which on an alert fires."""

_OF_DISK = "min by (rig, instance, device)"
"""A disk fires one alert, however often it is mounted: containers and binds mount it again."""

_MOUNTED = (
    "{{ with printf `node_filesystem_size_bytes{rig=%q,device=%q}` $labels.rig $labels.device | query }}"
    '{{ . | sortByLabel "mountpoint" | first | label "mountpoint" }}{{ end }}'
)
"""The first place where it is."""

_PAUSED = "llamaherd_server_paused"
"""1 for each server that `herd pause` has stopped, by the exporter of its rig."""
_NOT_PAUSED = "unless on(instance) llamaherd:server:paused"

_DOWN, _SERVERS = "ServerDown", ('job="server"', 'waits="no"')


class Recording(NamedTuple):
    """A figure under a name of its own, for dashboards and alerts; `labels` are added to it."""

    record: str
    expr: str
    labels: tuple[tuple[str, str], ...] = ()


def _rate(metric: str, over: str = "5m") -> str:
    return f"rate({metric}[{over}])"


def down_expression(*labels: str) -> str:
    """Return the targets that do not respond and are not paused; of a group, only if no model of it responds."""
    alone, grouped = (f"up{{{','.join((*labels, group))}}}" for group in ('group=""', 'group!=""'))
    down = f"max by (job, rig, group) ({grouped}) == 0"
    return f'({alone} == 0 or label_replace({down}, "instance", "$1", "group", "(.+)")) {_NOT_PAUSED}'


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
    Recording("llamaherd:server:paused", f'label_join({_PAUSED}, "instance", ".", "rig", "server")'),
)
"""Metrics of all engines, by one name each. Each read resets llama-server's own rates: these are of its counters."""


def loaded_recordings(servers: Sequence[MonitoredServer]) -> Iterator[Recording]:
    """Yield which models of groups are loaded, if there are groups."""
    if any(server.group for server in servers):
        yield Recording("llm:model:loaded", 'up{job="server",group!=""}')


def speed_recordings(servers: Sequence[MonitoredServer]) -> Iterator[Recording]:
    """Yield the expected speed of servers, their measured speed, and the limit below which they are slow."""
    for server in servers:
        labels = (("rig", server.rig), ("instance", server.name))
        known = {"expected": server.decode, "measured": server.measured, "floor": server.floor}
        for name, speed in known.items():
            if speed is not None:
                yield Recording(f"llm:decode_tokens_per_second:{name}", f"vector({speed:g})", labels)


def gpu_recordings(hosts: Sequence[MonitoredHost]) -> Iterator[Recording]:
    """Yield the number of GPUs, and their limits: each limit with the labels of its GPU's own metric."""
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


def drift_recordings(hosts: Sequence[MonitoredHost]) -> Iterator[Recording]:
    """Yield what `herd diff --tell` has reported of rigs, and the rigs that it must report on."""
    # The exporter that reports it is another rig's: Prometheus calls the rig that a figure is of `exported_rig`.
    for name, figure in (
        ("llamaherd:drift:changes", "llamaherd_diff_drift_changes"),
        ("llamaherd:inventory:changes", "llamaherd_diff_inventory_changes"),
        ("llamaherd:drift:seen_seconds", f"last_over_time(llamaherd_diff_seen_seconds[{LONGEST_UNINSPECTED}])"),
    ):
        yield Recording(name, f'max by (rig) (label_replace({figure}, "rig", "$1", "exported_rig", "(.+)"))')
    for host in hosts:
        yield Recording("llamaherd:drift:expected", "vector(1)", (("rig", host.rig),))


class Alert(NamedTuple):
    """An alert: an expression that is true for `wait`, and its text."""

    name: str
    expr: str
    wait: str
    severity: Literal["page", "warning"]
    summary: str
    help: str


ALERTS = (
    Alert(
        "RigUnreachable",
        'up{job="host"} == 0',
        "5m",
        "page",
        "rig {{ $labels.rig }} does not respond",
        "check that it is on; `herd verify {{ $labels.rig }}` reports whether its exporter runs",
    ),
    Alert(
        _DOWN,
        f"up{{{','.join(_SERVERS)}}} == 0 {_NOT_PAUSED}",
        "5m",
        "page",
        "server {{ $labels.instance }} does not respond",
        "`herd verify {{ $labels.rig }}` shows more",
    ),
    Alert(
        "ServerHangs",
        "llamacpp:requests_processing > 0"
        f" and on(instance) llamacpp:n_decode_total == llamacpp:n_decode_total offset {STILL}",
        "5m",
        "page",
        "server {{ $labels.instance }} holds {{ $value }} requests, and computes nothing",
        "`herd verify {{ $labels.rig }}` sends it a prompt; see its log, and restart it if it does not respond",
    ),
    Alert(
        "ServerStopped",
        f'node_systemd_unit_state{{name=~"llama-.+",state="active"}} == 0 unless on(rig, name) {_PAUSED}',
        "10m",
        "page",
        "{{ $labels.name }} on {{ $labels.rig }} does not run",
        "see `systemctl status {{ $labels.name }}` there; `herd up {{ $labels.rig }}` starts it",
    ),
    Alert(
        "ServerRestarts",
        'changes(node_systemd_service_restart_total{name=~"llama-.+"}[30m]) > 2',
        "0m",
        "page",
        "{{ $labels.name }} on {{ $labels.rig }} was started {{ $value }} times in half an hour",
        "see why it ends: `journalctl -u {{ $labels.name }}` there",
    ),
    Alert(
        "RequestsWait",
        "llm:requests:waiting > 0",
        "10m",
        "warning",
        "{{ $value }} requests wait in server {{ $labels.instance }}",
        "it has fewer slots than people ask for: see `parallel`, or let a gateway share them out",
    ),
    Alert(
        "SlowerThanExpected",
        "llm:decode_tokens_per_second:rate5m < on(instance) group_left llm:decode_tokens_per_second:floor"
        " and on(instance) max_over_time(llm:requests:processing[5m]) <= 1",
        "15m",
        "warning",
        '{{ $labels.instance }} writes {{ printf "%.1f" $value }} tokens a second to one client',
        "that is less than half of `expect.decode`, or than 70 % of what was measured: see what else runs there, and "
        "measure it anew with `herd bench`",
    ),
    Alert(
        "DraftsRefused",
        f"llm:drafts_accepted:ratio30m < {LEAST_ACCEPTED}",
        "30m",
        "warning",
        "{{ $labels.instance }} takes {{ $value | humanizePercentage }} of what is drafted for it",
        "drafting costs more than it brings: see `draft`, and measure both with `herd compare`",
    ),
    Alert(
        "DiskFilling",
        f"{_OF_DISK} ("
        'time() + node_filesystem_avail_bytes{fstype!="tmpfs"} / -(deriv(node_filesystem_avail_bytes[6h]) < 0)'
        f" < time() + {SOON}"
        " and node_filesystem_avail_bytes < 0.3 * node_filesystem_size_bytes)",
        "1h",
        "warning",
        f"{_MOUNTED} on {{{{ $labels.rig }}}} is full by {{{{ humanizeTimestamp $value }}}}",
        "`herd models {{ $labels.rig }}` and `herd prune {{ $labels.rig }}` show which files you can remove",
    ),
    Alert(
        "DiskFull",
        f'{_OF_DISK} (node_filesystem_avail_bytes{{fstype!="tmpfs"}} < 0.05 * node_filesystem_size_bytes)',
        "10m",
        "page",
        f"{_MOUNTED} on {{{{ $labels.rig }}}} has {{{{ humanize1024 $value }}}}B left",
        "`herd models {{ $labels.rig }}` and `herd prune {{ $labels.rig }}` show which files you can remove",
    ),
    Alert(
        "GpuMissing",
        "llamaherd_gpus < on(rig) group_left llamaherd:gpus:declared",
        "5m",
        "page",
        "{{ $labels.rig }} has {{ $value }} GPUs, and more are declared",
        "see `nvidia-smi` and `journalctl -k -g NVRM` there; what has fallen off the bus needs a reboot",
    ),
    Alert(
        "GpuError",
        f'time() - llamaherd_gpu_xid_last_seconds{{xid=~"{"|".join(XIDS)}"}} < 3600',
        "0m",
        "page",
        "GPU {{ $labels.pci }} of {{ $labels.rig }} failed: Xid {{ $labels.xid }}",
        "see `journalctl -k -g NVRM` there, and NVIDIA's list of Xid errors; most of these need a reset or a reboot",
    ),
    Alert(
        "GpuHot",
        f"llamaherd_gpu_temperature_celsius > {HOT}",
        "10m",
        "warning",
        "GPU {{ $labels.index }} of {{ $labels.rig }} has {{ $value }} °C",
        "see its fans and its air; `power_limit` makes it cooler",
    ),
    Alert(
        "GpuThrottled",
        'llamaherd_gpu_throttled{why=~"hw_thermal|hw_power_brake"} == 1',
        "5m",
        "warning",
        "GPU {{ $labels.index }} of {{ $labels.rig }} slows itself down: {{ $labels.why }}",
        "it is too hot, or its power supply signals a power brake: see fans, air and cables",
    ),
    Alert(
        "GpuMemoryErrors",
        "llamaherd_gpu_ecc_uncorrected_errors > 0",
        "0m",
        "page",
        "GPU {{ $labels.index }} of {{ $labels.rig }} has {{ $value }} memory errors that nothing corrected",
        "what it computes may be wrong: reset it, and see `nvidia-smi -q -d ECC` there",
    ),
    Alert(
        "PowerLimitLost",
        "llamaherd_gpu_power_limit_watts > 1.02 * llamaherd:gpu_power_limit_watts:declared",
        "10m",
        "warning",
        "GPU {{ $labels.index }} of {{ $labels.rig }} may take {{ $value }} W, more than is declared",
        "`herd up {{ $labels.rig }}` holds it again; see what changed it",
    ),
    Alert(
        "FiguresOld",
        "time() - llamaherd_figures_seconds > 300",
        "5m",
        "warning",
        "the metrics of {{ $labels.rig }} that a timer writes are old: GPUs, certificate, pauses",
        "see `systemctl status llamaherd-figures` there: nvidia-smi may hang",
    ),
    Alert(
        "CertificateEnds",
        f"llamaherd_certificate_end_seconds < time() + {ENDS}",
        "1h",
        "warning",
        "the gateway's certificate on {{ $labels.rig }} ends on {{ humanizeTimestamp $value }}",
        "run `herd up {{ $labels.rig }}`; if it is not of your own CA, first replace the file that `gateway.tls` names",
    ),
    Alert(
        "GatewayDown",
        'up{job="gateway"} == 0',
        "2m",
        "page",
        "the gateway on {{ $labels.rig }} does not respond",
        "see `herd gateway status`, and `journalctl -u llamaherd-gateway` there",
    ),
    Alert(
        "GatewayServerDown",
        'haproxy_server_status{proxy=~"m_.+",state="DOWN"} == 1'
        f' unless on(server) label_join({_PAUSED}, "server", ".", "rig", "server")',
        "5m",
        "page",
        "the gateway on {{ $labels.rig }} finds {{ $labels.server }} away",
        "see `herd gateway status`, and that server",
    ),
    Alert(
        "GatewayServerFlaps",
        'changes(haproxy_server_check_up_down_total{proxy=~"m_.+"}[30m]) > 3',
        "0m",
        "warning",
        "{{ $labels.server }} was away {{ $value }} times in half an hour, by the gateway on {{ $labels.rig }}",
        "see its log, and the network between both",
    ),
    Alert(
        "PeopleWait",
        f'haproxy_backend_queue_time_average_seconds{{proxy=~"m_.+"}} > {LONG} and haproxy_backend_current_queue > 0',
        "10m",
        "warning",
        '{{ $labels.proxy }} on {{ $labels.rig }}: requests wait for {{ printf "%.0f" $value }} s',
        "its servers receive more requests than they can process: see `herd gateway status`",
    ),
    Alert(
        "PeopleRefused",
        '60 * rate(haproxy_frontend_requests_denied_total{proxy="gateway"}[10m]) > 2',
        "10m",
        "warning",
        'the gateway on {{ $labels.rig }} refuses {{ printf "%.0f" $value }} requests a minute with HTTP 429',
        "see `herd gateway status` for their users, and `queue` and `streams` in fleet.yaml",
    ),
    Alert(
        "DriftFound",
        "llamaherd:drift:changes > 0 and on(rig) llamaherd:drift:expected",
        "0m",
        "warning",
        "{{ $labels.rig }} has drifted; changes that restore it: {{ $value }}",
        "`herd diff {{ $labels.rig }}` shows the changes, `herd up {{ $labels.rig }}` applies them, and "
        "`herd diff --tell` inspects the rig again",
    ),
    Alert(
        "DriftUnknown",
        f"llamaherd:drift:expected unless on(rig) llamaherd:drift:seen_seconds > time() - {_LONGEST_SECONDS}",
        "1h",
        "warning",
        f"{{{{ $labels.rig }}}} was not compared with its plan for {LONGEST_UNINSPECTED}",
        "see `systemctl --user status llamaherd-look` where the inventory is; `herd diff --tell` compares it now",
    ),
)
"""Each has a test in which it fires, and one in which it does not."""


def asleep_recordings(hosts: Sequence[MonitoredHost], servers: Sequence[MonitoredServer]) -> Iterator[Recording]:
    """Yield the rigs that a gateway can wake and that do not respond, and their servers."""
    for host in hosts:
        if host.wakes:
            silent = f'max by (rig) (up{{job="host",rig="{host.rig}"}} == 0)'
            yield Recording("llamaherd:rig:asleep", silent)
            for server in (each for each in servers if each.rig == host.rig):
                for name in dict.fromkeys((server.name, server.group or server.name)):
                    yield Recording("llamaherd:server:asleep", silent, (("instance", name), ("server", name)))


_ASLEEP: Mapping[str, str] = {
    "RigUnreachable": "unless on(rig) llamaherd:rig:asleep",
    "DriftUnknown": "unless on(rig) llamaherd:rig:asleep",
    _DOWN: "unless on(instance) llamaherd:server:asleep",
    "GatewayServerDown": "unless on(server) llamaherd:server:asleep",
}
"""By alert, the rigs and servers that are asleep. A rig that does not respond has no other metrics."""


def alerts_of(servers: Sequence[MonitoredServer], *, wakes: bool = False) -> tuple[Alert, ...]:
    """Return the alerts of a fleet with these servers. A model that its group has not loaded is not down.

    `wakes`: there are rigs that a gateway can wake. They are not down while they sleep.
    """
    alerts: tuple[Alert, ...] = ALERTS
    if any(server.group for server in servers):
        down = down_expression(*_SERVERS)
        alerts = tuple(each._replace(expr=down) if each.name == _DOWN else each for each in alerts)
    if not wakes:
        return alerts
    return tuple(
        each._replace(expr=f"({each.expr}) {_ASLEEP[each.name]}") if each.name in _ASLEEP else each for each in alerts
    )
