"""The timer that ends the pause of a server, and the files of a pause.

paused/SERVICE/pause.json   the record: while it exists, a server that does not run is paused
paused/SERVICE/resume.json  the input of the verb that the timer runs
paused/SERVICE/program.pyz  the program for it: this version may be removed from the host before
"""

from __future__ import annotations

import time

from llamaherd.layout import PAUSED, TIMER_STAMPS, UNITS, resume_of
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.document import VERSION, dump
from llamaherd.onhost.server_control import ControlledServer, PauseEndInput, record_of
from llamaherd.onhost.system import FailedError, System

_TIMER = """\
# Written by llamaherd: `herd pause` made it, and `herd resume {name}` removes it.
[Unit]
Description=End of the pause of {service}

[Timer]
OnCalendar={end} UTC
AccuracySec=1s
# Also at the next boot, if the host is off then.
Persistent=true
# Also if that time was over before this timer, and after a boot that interrupted the end of the pause.
OnActiveSec=1min

[Install]
WantedBy=timers.target
"""
_SERVICE = """\
# Written by llamaherd: `herd pause` made it, and `herd resume {name}` removes it.
[Unit]
Description=Start {service} after its pause
After=network-online.target docker.service

[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -I {folder}/program.pyz {folder}/resume.json
TimeoutStartSec=infinity
# Another run may keep the host for longer than this waits.
Restart=on-failure
RestartSec=60
"""


def write_timer(server: ControlledServer, until: float, system: System) -> None:
    """Let the host start a server at a time. Raise FailedError if it would not."""
    folder, timer = f"{PAUSED}/{server.service}", f"{resume_of(server.name)}.timer"
    system.folder(folder)
    system.copy(system.program, f"{folder}/program.pyz")
    document = {"version": VERSION, "verb": "serve.control.end", "input": PauseEndInput(server)}
    system.write(f"{folder}/resume.json", dump(document))
    end_time = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(until))
    values = {"name": server.name, "service": server.service, "end": end_time, "folder": folder}
    system.write(f"{UNITS}/{resume_of(server.name)}.service", _SERVICE.format(**values), mode=0o644)
    system.write(f"{UNITS}/{timer}", _TIMER.format(**values), mode=0o644)
    # systemd would begin from the time of an earlier pause.
    system.remove(f"{TIMER_STAMPS}/stamp-{timer}")
    systemctl(system, "-q", "--no-reload", "enable", timer)
    systemctl(system, "daemon-reload")
    if not systemctl(system, "restart", timer).ok:
        end_pause(server.name, server.service, system)
        message = f"{timer} does not start, so {server.service} was not stopped"
        raise FailedError(message, f"see `systemctl status {timer}`")


def end_pause(name: str, service: str, system: System) -> None:
    """Remove the record of a pause, and its timer. Do nothing where there is none."""
    unit, folder = resume_of(name), f"{PAUSED}/{service}"
    paths = (record_of(service), f"{UNITS}/{unit}.timer", f"{UNITS}/{unit}.service", folder)
    if not any(map(system.entry, paths)):
        return
    system.remove(record_of(service))
    systemctl(system, "-q", "disable", "--now", f"{unit}.timer")
    for path in (*paths[1:], f"{TIMER_STAMPS}/stamp-{unit}.timer"):
        system.remove(path)
    systemctl(system, "daemon-reload")
