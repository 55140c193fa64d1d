"""Runs that are killed: the next one goes on from there, and the one after it finds nothing to do."""

import signal
import threading
import time
from collections.abc import Callable

import pytest

from tests.box.bench import Bench
from tests.box.changes import RUN_WAITS

UNIT = "/etc/systemd/system/llama-chat.service"


def soon_after(text: str) -> Callable[[str], bool]:
    """A moment: three seconds after the line that has this text."""

    def is_it(line: str) -> bool:
        if text not in line:
            return False
        time.sleep(3)
        return True

    return is_it


def declare_other_build(bench: Bench, no: str) -> None:
    """Ask for a build that nobody has made, by an option that is off anyway: ccache knows most of it."""
    rig = bench.rig()
    rig["engines"]["main"]["options"] |= {"GGML_LTO": no}
    bench.declare(rig)


def builds(bench: Bench) -> list[str]:
    """The units that build at the moment."""
    return bench.sh("systemctl list-units --plain --no-legend 'llamaherd-build-*' | cut -d ' ' -f 1").split()


def once_it_builds(bench: Bench, then: str = "true") -> Callable[[str], bool]:
    """The moment when a build has just begun; `then` is done to its unit at once."""

    def is_it(line: str) -> bool:
        if "building llama.cpp" not in line:
            return False
        while not builds(bench):
            time.sleep(0.1)
        bench.sh(f"{then} {builds(bench)[0]}")
        return True

    return is_it


def test_in_a_build(bench: Bench) -> None:
    """The build outlives the run that began it, and the next run takes it over."""
    before = bench.running()
    declare_other_build(bench, "N")
    began = bench.sh("date +%s")
    bench.killed(signal.SIGINT, once_it_builds(bench))
    bench.finishes()
    bench.unchanged(before, "chat", "drafter")
    started = bench.sh(f"journalctl -q --no-pager -o cat --since=@{began} | grep -c '^Started llamaherd-build-'")
    assert started == "1"
    assert bench.answers("chat")


@pytest.mark.rare
def test_in_a_build_together_with_the_compiler(bench: Bench) -> None:
    """As by the kernel when memory runs out, or by a reboot: what is half-way is not taken for whole."""
    before = bench.running()
    declare_other_build(bench, "NO")
    # Held still, so that it cannot end before the second run, which looks on, is killed too.
    bench.killed(signal.SIGINT, once_it_builds(bench, "systemctl kill -s STOP"))
    (unit,) = builds(bench)
    bench.killed(signal.SIGKILL, soon_after("building llama.cpp"))
    bench.unchanged(before)
    bench.sh(f"systemctl kill -s KILL {unit}")
    bench.finishes()
    bench.unchanged(before, "chat", "drafter")


@pytest.mark.rare
def test_between_the_project_file_and_the_new_container(bench: Bench) -> None:
    before = bench.running()
    rig = bench.rig()
    rig["instances"]["drafter"]["context"] = 1024
    bench.declare(rig)
    (drafter,) = [instance for instance in bench.plan()["instances"] if instance["name"] == "drafter"]
    bench.host.exec("sh", "-c", 'printf %s "$0" >/etc/llamaherd/compose/drafter/compose.yaml', drafter["file"]["text"])
    bench.finishes()
    bench.unchanged(before, "drafter")
    assert '"n_ctx":1024' in bench.ask("drafter", "/props")[1]


@pytest.mark.rare
def test_while_packages_are_installed(bench: Bench) -> None:
    """With dpkg killed in the middle, too."""
    before = bench.running()
    bench.sh("apt-get remove -qq -y cmake mmdebstrap >/dev/null 2>&1")
    # Only while it unpacks: apt calls dpkg for small questions too, and what a killed question leaves is whole.
    look = (
        "for i in $(seq 3000); do for pid in $(pidof dpkg); do grep -aqs -e --unpack /proc/$pid/cmdline &&"
        " kill -9 $pid && touch /run/killed && exit; done; sleep 0.02; done"
    )
    killer = threading.Thread(target=bench.sh, args=(look,))
    killer.start()
    bench.killed(signal.SIGKILL, soon_after("installing"))
    killer.join()
    bench.sh("rm /run/killed")
    assert bench.sh("dpkg -l cmake mmdebstrap | grep -c ^ii", check=False) != "2"
    bench.finishes()
    bench.unchanged(before)
    assert bench.sh("dpkg --audit") == ""
    assert "install ok installed" in bench.sh("dpkg -s cmake")


def test_a_user_that_another_run_takes_away_meanwhile(bench: Bench) -> None:
    """Whoever holds the lock may go on to a container, and forget the unit and its user: the next run waits for it."""
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 4096
    bench.declare(rig)
    goes = "systemctl stop llama-chat; userdel llama-chat && touch /run/user-gone"
    bench.sh(f"systemd-run -q --unit=other flock /run/llamaherd/locks/host sh -c '{RUN_WAITS}; {goes}'")
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert "waiting for another run" in ended.output
    bench.sh("rm /run/user-gone")
    assert bench.answers("chat")
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output


def test_a_unit_that_a_boot_starts_in_place_of_the_container(bench: Bench) -> None:
    """A run that was killed has stopped the container and enabled a unit: after a boot the unit has the port."""
    program = "import http.server as h; h.HTTPServer((str(), 8081), h.SimpleHTTPRequestHandler).serve_forever()"
    # A host that dies takes no note of a container's last health: Docker goes on with what it had written before.
    told = "/var/lib/docker/containers/$(docker inspect -f '{{.Id}}' llama-drafter)/config.v2.json"
    healthy = """s/"Status":"unhealthy"/"Status":"healthy"/"""
    bench.sh(
        f"docker stop llama-drafter; told={told}; systemctl stop docker.socket docker; "
        f"sed -i '{healthy}' $told; systemctl start docker"
    )
    assert bench.sh("docker inspect -f '{{.State.Status}} {{.State.Health.Status}}' llama-drafter") == "exited healthy"
    bench.sh(
        "echo 0123456789ab >>/var/lib/llamaherd/kept/llama-drafter/untried; "
        f"echo '{program}' >/run/holds.py; printf '%s\\n' '# Written by llamaherd' "
        "'[Service]' Environment=LLAMAHERD_SPEC=0123456789ab 'ExecStart=/usr/bin/python3 /run/holds.py --port 8081' "
        ">/etc/systemd/system/llama-drafter.service; systemctl daemon-reload; systemctl start llama-drafter; sleep 1"
    )
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert bench.answers("drafter")
    assert bench.sh("ls /etc/systemd/system/llama-drafter.service", check=False) == ""
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output
