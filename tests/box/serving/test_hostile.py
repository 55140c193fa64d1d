"""Texts that mean harm, as a real systemd and a real Compose read them from the files that we would write."""

from __future__ import annotations

import json

from box.host import BoxHost
from box.inside import File
from llamaherd.text import quoting
from llamaherd.text.quoting import harmful
from tests.box.bench import Bench
from tests.support.hostile import EVERY, PLAIN

SHIFTED = (*PLAIN[7:], *PLAIN[:7])
TEXTS = tuple(
    text
    for text in dict.fromkeys(
        (
            *EVERY,
            *(first + second for first, second in zip(PLAIN, SHIFTED, strict=True)),
            *(f"a {text} b" for text in PLAIN),
            *(f"{text}\\" for text in PLAIN),
            *(f"-{text}" for text in PLAIN),
            *(f"{first}\n{second}\t" for first, second in zip(PLAIN, SHIFTED, strict=True)),
        )
    )
    if harmful(text.replace("\n", "").replace("\t", "")) is None
)
"""What an inventory lets through, line ends and tabs too, as arguments may have them."""

TELLER, UNIT, COMPOSE = "/opt/hostile/tell", "/etc/systemd/system/hostile.service", "/opt/hostile/compose.yaml"
TELL = """\
#!/bin/sh
printf '%s\\0' "$@" >/run/hostile.arguments
cat /proc/$$/environ >/run/hostile.environment
"""


def test_there_are_many() -> None:
    assert len(TEXTS) > 500


def test_systemd_starts_with_what_was_meant(box_host: BoxHost) -> None:
    """Arguments and variables, as the started process has them."""
    variables = {f"V{number}": text for number, text in enumerate(TEXTS)}
    given = "".join(f"Environment={quoting.systemd_value(f'{name}={text}')}\n" for name, text in variables.items())
    arguments = " ".join(quoting.systemd_argument(text) for text in TEXTS)
    unit = f"[Service]\nType=oneshot\n{given}ExecStart={TELLER} {arguments}\n"
    box_host.put(File(UNIT, unit.encode()), File(TELLER, TELL.encode(), 0o755))
    box_host.exec("systemctl", "daemon-reload")
    box_host.exec("systemctl", "start", "hostile.service")
    assert box_host.exec("cat", "/run/hostile.arguments").split("\0")[:-1] == list(TEXTS)
    told = box_host.exec("cat", "/run/hostile.environment").split("\0")[:-1]
    environment = dict(each.split("=", 1) for each in told)
    assert {name: environment.get(name) for name in variables} == variables
    assert "PWNED" not in box_host.exec("ls", "/tmp")
    box_host.exec("rm", UNIT)
    box_host.exec("systemctl", "daemon-reload")


def test_compose_reads_what_was_meant(converged: Bench, box_host: BoxHost) -> None:
    """A service's command and variables, as Compose itself prints them: there `$$` is one dollar again."""
    assert converged, "Docker is on a host that was deployed"
    variables = {f"V{number}": text for number, text in enumerate(TEXTS)}
    lines = [
        *("services:", "  a:", "    image: none", "    command:"),
        *(f"      - {quoting.compose(text)}" for text in TEXTS),
        "    environment:",
        *(f"      {name}: {quoting.compose(text)}" for name, text in variables.items()),
    ]
    box_host.put(File(COMPOSE, "\n".join(lines).encode() + b"\n"))
    said = box_host.exec("docker", "compose", "-f", COMPOSE, "config", "--format", "json")
    service = json.loads(said)["services"]["a"]
    assert [each.replace("$$", "$") for each in service["command"]] == list(TEXTS)
    assert {name: text.replace("$$", "$") for name, text in service["environment"].items()} == variables
