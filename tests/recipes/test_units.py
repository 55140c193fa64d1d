"""systemd units among recipes: read as systemd reads them, and what each rule says and lets be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.recipes import examine
from llamaherd.recipes.commands import positioned
from llamaherd.recipes.units import read_unit, unit_environment, words

START = "ExecStart=/usr/bin/llama-server -m /srv/a.gguf --port 8081"
UNIT = f"""[Unit]
Description=llama # one
After=network.target

[Service]
User=llama
{START}
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
"""


def said(folder: Path, text: str, name: str = "llama.service") -> list[tuple[int, str]]:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return [(finding.place.line, finding.code) for finding in examine(file)]


def unit(*more: str, start: str = START) -> str:
    """The unit with other lines under [Service], and another ExecStart."""
    return UNIT.replace(START, "\n".join([start, *more]))


@pytest.mark.parametrize(
    "text",
    [
        UNIT,
        UNIT.replace("\n", "\r\n"),
        unit("Type=exec", "# a comment", "; another", "LimitMEMLOCK=infinity", "X-Own=1"),
        unit('Environment="A=b c" D=e', "Environment='F=g h'", 'Environment=G="h i"'),
        unit(
            "Environment=MODEL=/srv/a.gguf", "Environment=MORE=", start=START.replace("/srv/a.gguf", "${MODEL} $MORE")
        ),
        unit(start="EnvironmentFile=-/etc/llama.env\nExecStart=/usr/bin/llama-server -m ${MODEL}"),
        unit(start="ExecStart=/usr/bin/llama-server \\\n# in between\n  -m /srv/a.gguf \\\n  --port 8081"),
        unit(start="ExecStart=/usr/bin/llama-server -m ${STATE_DIRECTORY}/a.gguf\nStateDirectory=llama"),
        unit(start="ExecStart=-+/usr/bin/llama-server -m %h/a.gguf"),
        unit(start="WorkingDirectory=/srv\nExecStart=/usr/bin/llama-server -m a.gguf"),
        unit(start="ExecStart=/bin/bash -c 'exec llama-server -m /srv/a.gguf | tee /tmp/log'"),
        unit("ExecStart=", START),
        unit("MemoryMax=48G", "MemoryHigh=80%", "LimitNOFILE=65536:infinity", "CPUQuota=800%", "Nice=-5", "Nice=19"),
        unit(
            "StandardOutput=append:/var/log/llama.log", "KillSignal=SIGINT", "OOMScoreAdjust=-900", "CPUAffinity=0-7 12"
        ),
        unit("RestrictAddressFamilies=AF_UNIX AF_INET", "IPAddressDeny=any", "IPAddressAllow=localhost"),
        unit("RestrictAddressFamilies=~AF_PACKET", "WorkingDirectory=~", "EnvironmentFile=-/etc/llama/%i.env"),
        unit("ExecStartPost=-/usr/bin/curl -f http://localhost:8081/health"),
        unit("ExecStartPost=/usr/bin/curl --retry 60 --retry-connrefused http://localhost:8081/health"),
        unit("CPUAffinity=0-7", start=f"{START} -t 8"),
        unit("ProtectSystem=strict", "LogsDirectory=llama", start=f"{START} --log-file /var/log/llama/server.log"),
        UNIT.replace("After=network.target", "After=docker.service %i.target\nBindsTo=dev-sda1.device"),
        UNIT.replace("[Unit]\nDescription=llama # one\nAfter=network.target\n\n", "").split("[Install]")[0],
        unit("ProtectHome=read-only", start=START.replace("/srv", "/home/tom")),
        unit("ProtectHome=true", "BindReadOnlyPaths=/home/tom", start=START.replace("/srv", "/home/tom")),
        unit("PrivateTmp=true", "PrivateDevices=no", start=f"{START} -ngl 99"),
        unit("DevicePolicy=closed", "DeviceAllow=char-nvidia* rw", start=f"{START} -ngl 99"),
        unit("PrivateDevices=yes", start=f"{START} -ngl 0"),
        UNIT.replace("After=network.target", "Wants=network-online.target\nAfter=network-online.target"),
        UNIT.replace("User=llama", "DynamicUser=yes"),
        UNIT.replace("[Unit]", "[Unit]\nStartLimitIntervalSec=300\nStartLimitBurst=3").replace("RestartSec=5\n", ""),
        "[Unit]\nDescription=a timer\n[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n[Service]\n",
    ],
)
def test_what_is_right_is_let_be(text: str, tmp_path: Path) -> None:
    assert said(tmp_path, text) == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("WatchdogSec=30", "LH192"),
        ("Environment=LLAMA_API_KEY=secret", "LH199"),
        ("Type=notify", "LH192"),
        ("Type=forking", "LH192"),
        ("Type=oneshot", "LH192"),
        ("Environment=PATH=/opt/bin:$PATH", "LH193"),
        ("Environment=LD_LIBRARY_PATH=${HOME}/lib", "LH193"),
        ("WorkingDirectory=/home/tom/llama\nProtectHome=yes", "LH194"),
    ],
)
def test_a_line_that_is_wrong_is_said(line: str, code: str, tmp_path: Path) -> None:
    # Behind ExecStart, which is line 7.
    assert said(tmp_path, unit(line)) == [(8, code)]


@pytest.mark.parametrize(
    ("arguments", "more", "codes"),
    [
        ("-m /srv/a.gguf > /var/log/llama.log 2>&1", "", ["LH191"]),
        ("-m /srv/a.gguf >>/var/log/llama.log", "", ["LH191"]),
        ("-m /srv/a.gguf | tee log", "", ["LH191"]),
        ("-m /srv/a.gguf && echo on", "", ["LH191"]),
        ("-m /srv/a.gguf &", "", ["LH191"]),
        ("-m /srv/a.gguf # the model", "", ["LH191"]),
        ("-m ~/a.gguf", "", ["LH191"]),
        ("-m ${MODEL}", "", ["LH193"]),
        ("-m /srv/a.gguf $MORE", "", ["LH193"]),
        ("-m $HOME/a.gguf", "", ["LH193"]),
        ("-m /srv/$NAME", "", ["LH193"]),
        ("-m models/a.gguf", "", ["LH194"]),
        ("-m /srv/a.gguf --mmproj p.gguf", "", ["LH194"]),
        ("-m /home/tom/a.gguf", "ProtectHome=true", ["LH194"]),
        ("-m /root/a.gguf", "ProtectHome=tmpfs", ["LH194"]),
        ("-m /tmp/a.gguf", "PrivateTmp=yes", ["LH194"]),
        ("-m /srv/a.gguf -ngl 99", "PrivateDevices=yes", ["LH194"]),
        ("-m /srv/a.gguf -ngl 99", "DevicePolicy=strict", ["LH194"]),
        ("-m /srv/a.gguf --mlock", "", ["LH101", "LH197"]),
        ("-m /srv/a.gguf --mlock", "LimitMEMLOCK=64M", ["LH101", "LH197"]),
        ("-m /srv/a.gguf --mlock", "LimitMEMLOCK=infinity", ["LH101"]),
        ("-m /srv/a.gguf -ngl 99", "ProcSubset=pid", ["LH194"]),
        ("-m /srv/a.gguf -ngl 99", "DeviceAllow=/dev/nvidia0 rw", ["LH194"]),
        ("-m /srv/a.gguf --port 80", "AmbientCapabilities=CAP_NET_BIND_SERVICE", []),
        ("-m /srv/a.gguf \\  # the model\n  --port 8080", "", ["LH191", "LH141"]),
    ],
)
def test_a_command_that_is_wrong_is_said(arguments: str, more: str, codes: list[str], tmp_path: Path) -> None:
    text = unit(*filter(None, [more]), start=f"ExecStart=/usr/bin/llama-server {arguments}")
    assert [code for _, code in said(tmp_path, text)] == codes


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ("RestartSec=5\n", "", [(8, "LH196")]),
        ("WantedBy=multi-user.target", "WantedBy=default.target", []),
        ("WantedBy=multi-user.target", "Alias=llm.service", [(7, "LH268")]),
        ("\n[Install]\nWantedBy=multi-user.target\n", "", [(7, "LH268")]),
        ("Restart=on-failure\nRestartSec=5\n", "", [(7, "LH268")]),
        ("Restart=on-failure", "Restart=on-success", [(8, "LH268")]),
        ("--port 8081", "--port 8081 \\", [(8, "LH141")]),
        ("/srv/a.gguf", "\N{LEFT DOUBLE QUOTATION MARK}/srv/a.gguf\N{RIGHT DOUBLE QUOTATION MARK}", [(7, "LH125")]),
        ("RestartSec=5", "RestartSec=1min 30s", []),
        ("/usr/bin/llama-server", "cd /opt; /usr/bin/llama-server", [(7, "LH191")]),
        ("/usr/bin/llama-server", "/usr/bin/nohup /usr/bin/llama-server", [(7, "LH191")]),
    ],
)
def test_what_is_missing_is_said(before: str, after: str, codes: list[tuple[int, str]], tmp_path: Path) -> None:
    assert sorted(said(tmp_path, UNIT.replace(before, after))) == codes


def test_a_setting_behind_a_backslash_is_named(tmp_path: Path) -> None:
    file = tmp_path / "llama.service"
    file.write_text(UNIT.replace("--port 8081", "--port 8081 \\"))
    (finding,) = examine(file)
    assert finding.message == "the line above ends in a backslash: `Restart` becomes an argument, and is not set"


def test_a_unit_of_a_user_is_started_by_its_own_manager(tmp_path: Path) -> None:
    of_user, text = ".config/systemd/user/llama.service", UNIT.replace("User=llama\n", "")
    assert said(tmp_path, text.replace("multi-user", "default"), of_user) == []
    assert said(tmp_path, text, of_user) == [(11, "LH268")]


@pytest.mark.parametrize(
    ("more", "arguments", "codes"),
    [
        ("AllowedCPUs=0-3,8-11", "-t 8", []),
        ("ProtectSystem=strict\nReadWritePaths=/srv", "--slot-save-path /srv/slots", []),
        ("ProtectSystem=full", "--slot-save-path /srv/slots", []),
    ],
)
def test_a_setting_and_an_argument_together(more: str, arguments: str, codes: list[str], tmp_path: Path) -> None:
    assert [code for _, code in said(tmp_path, unit(more, start=f"{START} {arguments}"))] == codes


def test_a_drop_in_is_a_part_of_a_unit(tmp_path: Path) -> None:
    text = "[Service]\nExecStart=\nExecStart=/usr/bin/llama-server -m a.gguf --no-mmap\n"
    assert said(tmp_path, text, "llama.service.d/override.conf") == [(3, "LH101")]


def test_a_unit_that_a_script_writes_has_variables_of_the_shell(tmp_path: Path) -> None:
    script = f"MODEL=/srv/a.gguf\ncat > /etc/systemd/system/llama.service <<EOF\n{UNIT}EOF\nsystemctl start llama\n"
    text = script.replace("/srv/a.gguf --port", "$MODEL --port")
    assert said(tmp_path, text, "install.sh") == []
    assert said(tmp_path, text.replace("RestartSec", "RestartSecs"), "install.sh") == [(10, "LH196")]


@pytest.mark.parametrize(
    ("options", "codes"),
    [("", []), ("-d", ["LH192"]), ("-it", ["LH192"]), ("--rm --detach", ["LH192"]), ("--rm -i", [])],
)
def test_a_container_under_systemd_stays_in_the_foreground(options: str, codes: list[str], tmp_path: Path) -> None:
    image = f"ghcr.io/ggml-org/llama.cpp:server@sha256:{'0' * 64}"
    start = f"ExecStart=/usr/bin/docker run {options} -p 127.0.0.1:80:8080 -v /m:/m {image} -m /m/a.gguf -t 8"
    assert [code for _, code in said(tmp_path, unit(start=start))] == codes


def test_lines_go_on_and_comments_end_none() -> None:
    found = read_unit(positioned("[Service]\nA=b \\\n# x\n ; y\n  c\nB = d\\\\\n"))
    assert [(each.key, each.text, each.start) for each in found.settings] == [
        ("A", "b    c", (2, 1)),
        ("B", "d\\\\", (6, 1)),
    ]


def test_an_empty_setting_takes_back_what_was_listed() -> None:
    found = read_unit(positioned("[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2\n"))
    assert list(unit_environment(found)) == ["B"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a --x='b c'd", ["a", "--x=b cd"]),
        ("a $LIST '$LIST' x$LIST", ["a", "1", "2", "$LIST", "x$LIST"]),
        ("a ${LIST} x${LIST}y", ["a", "1 2", "x1 2y"]),
        ("a # b ; c", ["a", "#", "b", ";", "c"]),
        ("a ''", ["a", ""]),
        ('a "open end', ["a", "open end"]),
    ],
)
def test_words_are_those_of_systemd(text: str, expected: list[str]) -> None:
    assert [str(word) for word in words(positioned(text), {"LIST": "1 2"})] == expected


@given(st.text(st.sampled_from(list("[]=\\#;$%{}'\" \n\tAb1/-"))))
def test_any_text_can_be_read(text: str) -> None:
    source = positioned(text)
    found = read_unit(source)
    lines = text.split("\n")
    for setting in found.settings:
        assert len(setting.value.chars) == len(setting.value.at)
        line, column = setting.start
        assert re.match(r"\S", lines[line - 1][column - 1 :])
        for word in words(setting.value, {"A": "b c"}):
            assert len(word.text.chars) == len(word.text.at)
