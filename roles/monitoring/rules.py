"""What Prometheus works out of figures, and when it says that something is wrong. Values; no host is asked.

`instance` is a server as `RIG.INSTANCE`, or a rig for what is of its host. Rates are over five minutes, so that a
scrape every 30 seconds gives ten figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from llamaherd.plan import MonitoredHost, MonitoredServer

BUSY = 0.1
"""Seconds of writing in a second, from which on a speed says something."""
SLOW = 0.5
"""Of what its owner expects: where `herd verify` fails, too."""
LEAST_ACCEPTED = 0.4
"""Of drafted tokens; with fewer, drafting costs more than it brings."""
SOON = 4 * 86400
"""Seconds in which a disk is full, from which on somebody is told."""

XIDS = ("48", "62", "64", "74", "79", "95", "119", "120")
"""Errors after which a GPU needs a reset: of nvidia_gpu_exporter's docs/METRICS.md, by NVIDIA's list. Those of
applications (13, 31, 43) and what is only told (63, 92) are not among them."""
LONG = 60
"""Seconds that requests wait on average, from which on somebody is told."""
HOT = 88
"""°C, where GeForce cards are near what slows them down."""
ENDS = 14 * 86400
"""Seconds before a certificate ends, from which on somebody is told."""


class Recording(NamedTuple):
    """A figure under a name of its own, for dashboards and alerts; `labels` are added to it."""

    record: str
    expr: str
    labels: tuple[tuple[str, str], ...] = ()


class Alert(NamedTuple):
    """When something is wrong: an expression that is true for `wait`, and what people are told."""

    name: str
    expr: str
    wait: str
    severity: Literal["page", "warning"]
    summary: str
    help: str


def _rate(metric: str, over: str = "5m") -> str:
    return f"rate({metric}[{over}])"


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

ALERTS = (
    Alert(
        "RigUnreachable",
        'up{job="host"} == 0',
        "5m",
        "page",
        "rig {{ $labels.rig }} does not answer",
        "see whether it is on; `herd verify {{ $labels.rig }}` says whether its exporter runs",
    ),
    Alert(
        "ServerDown",
        'up{job="server",waits="no"} == 0',
        "5m",
        "page",
        "server {{ $labels.instance }} does not answer",
        "`herd verify {{ $labels.rig }}` says more",
    ),
    Alert(
        "ServerStopped",
        'node_systemd_unit_state{name=~"llama-.+",state="active"} == 0',
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
        f"llm:decode_tokens_per_second:rate5m < on(instance) group_left {SLOW} * llm:decode_tokens_per_second:expected"
        " and on(instance) max_over_time(llm:requests:processing[5m]) <= 1",
        "15m",
        "warning",
        '{{ $labels.instance }} writes {{ printf "%.1f" $value }} tokens a second to one client',
        "that is less than half of `expect.decode`: measure it with `herd bench`, and see what else runs there",
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
        'time() + node_filesystem_avail_bytes{fstype!="tmpfs"} / -(deriv(node_filesystem_avail_bytes[6h]) < 0)'
        f" < time() + {SOON}"
        " and node_filesystem_avail_bytes < 0.3 * node_filesystem_size_bytes",
        "1h",
        "warning",
        "{{ $labels.mountpoint }} on {{ $labels.rig }} is full by {{ humanizeTimestamp $value }}",
        "`herd models {{ $labels.rig }}` and `herd prune {{ $labels.rig }}` say what can go",
    ),
    Alert(
        "DiskFull",
        'node_filesystem_avail_bytes{fstype!="tmpfs"} < 0.05 * node_filesystem_size_bytes',
        "10m",
        "page",
        "{{ $labels.mountpoint }} on {{ $labels.rig }} has {{ humanize1024 $value }}B left",
        "`herd models {{ $labels.rig }}` and `herd prune {{ $labels.rig }}` say what can go",
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
        "it is too hot, or its power supply says stop: see fans, air and cables",
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
        "nobody knows how the GPUs of {{ $labels.rig }} are",
        "see `systemctl status llamaherd-figures` there: nvidia-smi may hang",
    ),
    Alert(
        "CertificateEnds",
        f"llamaherd_certificate_end_seconds < time() + {ENDS}",
        "1h",
        "warning",
        "the gateway's certificate on {{ $labels.rig }} ends on {{ humanizeTimestamp $value }}",
        "run `herd up {{ $labels.rig }}`; where it is not of your own CA, put a new one where `gateway.tls` says first",
    ),
    Alert(
        "GatewayDown",
        'up{job="gateway"} == 0',
        "2m",
        "page",
        "the gateway on {{ $labels.rig }} does not answer",
        "see `herd gateway status`, and `journalctl -u llamaherd-gateway` there",
    ),
    Alert(
        "GatewayServerDown",
        'haproxy_server_status{proxy=~"m_.+",state="DOWN"} == 1',
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
        "more is asked than its servers answer: see `herd gateway status`",
    ),
    Alert(
        "PeopleRefused",
        '60 * rate(haproxy_frontend_requests_denied_total{proxy="gateway"}[10m]) > 2',
        "10m",
        "warning",
        'the gateway on {{ $labels.rig }} tells people {{ printf "%.0f" $value }} times a minute to come back',
        "see `herd gateway status` for who asks, and `queue` and `streams` in fleet.yaml",
    ),
)
"""Each has a test in which it fires, and one in which it does not."""


def expected(servers: Sequence[MonitoredServer]) -> Iterator[Recording]:
    """What owners expect of their servers, as figures to compare with."""
    for server in servers:
        if server.decode is not None:
            labels = (("rig", server.rig), ("instance", server.name))
            yield Recording("llm:decode_tokens_per_second:expected", f"vector({server.decode:g})", labels)


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
