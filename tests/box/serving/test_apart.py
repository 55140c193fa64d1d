"""Servers kept apart: what one of them could read of another, tried as each of them would."""

import pytest

from llamaherd.layout import container_user
from tests.box.bench import Bench

READERS = ["llama-ik-chat", container_user("drafter"), "llama", "nobody", "owner"]
ATTACH = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
sys.exit(ctypes.get_errno() if libc.ptrace(16, int(sys.argv[1]), None, None) else 0)  # PTRACE_ATTACH
"""
EPERM = 1


def attempt(bench: Bench, user: str, command: str) -> int:
    """The exit status of a command run on the host as a user, with nothing that systemd or Docker takes away."""
    quoted = command.replace("'", "'\\''")
    run = f"setpriv --reuid {user} --regid {user} --clear-groups sh -c '{quoted}' >/dev/null 2>&1; echo $?"
    return int(bench.sh(run))


def pid(bench: Bench, name: str) -> str:
    """The process of an instance."""
    if name == "drafter":
        return bench.sh("docker inspect -f '{{.State.Pid}}' llama-drafter")
    return bench.sh(f"systemctl show -P MainPID llama-{name}")


def test_no_two_servers_are_the_same_user(converged: Bench) -> None:
    owners = {name: converged.sh(f"stat -c %u /proc/{pid(converged, name)}") for name in ("chat", "drafter", "ik-chat")}
    assert len(set(owners.values())) == len(owners), owners


@pytest.mark.parametrize("user", READERS)
@pytest.mark.parametrize(
    "what",
    [
        "cat /etc/llamaherd/keys/chat",
        "cat /proc/{pid}/environ",
        "head -c 1 /proc/{pid}/mem",
        "cat /proc/{pid}/maps",
        "ls /proc/{pid}/fd",
        "ls /proc/{pid}/cwd/",
    ],
)
def test_nobody_reads_what_is_a_servers_own(converged: Bench, user: str, what: str) -> None:
    command = what.format(pid=pid(converged, "chat"))
    assert attempt(converged, user, command) != 0
    # It is there to be read, and root reads it.
    if "mem" not in what:
        converged.sh(command)


@pytest.mark.parametrize("user", READERS)
def test_nobody_traces_a_server(converged: Bench, user: str) -> None:
    converged.sh(f"cat >/run/attach.py <<'END'\n{ATTACH}\nEND")
    try:
        assert attempt(converged, user, f"python3 /run/attach.py {pid(converged, 'chat')}") == EPERM
    finally:
        converged.sh("rm -f /run/attach.py")


def test_a_servers_own_user_reads_its_key(converged: Bench) -> None:
    assert attempt(converged, "llama-chat", "cat /etc/llamaherd/keys/chat") == 0


@pytest.mark.parametrize("user", ["llama-chat", "llama-ik-chat", container_user("drafter")])
def test_every_server_reads_the_models(converged: Bench, user: str) -> None:
    assert attempt(converged, user, "head -c 4 /var/lib/llamaherd/models/local/*/*.gguf | grep -q GGUF") == 0


def test_nobody_else_can_hold_a_lock_of_ours(converged: Bench) -> None:
    locks = converged.sh("find /run/llamaherd/locks -type f").splitlines()
    assert locks
    for lock in locks:
        assert converged.sh(f"flock -n {lock} echo held") == "held"
        assert attempt(converged, "nobody", f"flock -n {lock} true") != 0


def test_a_server_that_is_taken_out_takes_its_user_and_key_with_it(bench: Bench) -> None:
    rig = bench.rig()
    # 34 characters with `llama-`, and a dot: neither useradd nor systemd would take it as it is.
    name = "a-name.that-is-rather-long-x"
    rig["instances"][name] = rig["instances"]["ik-chat"] | {"port": 8085, "api_key": {"file": str(bench.key_file)}}
    bench.declare(rig)
    ended = bench.deploy()
    assert ended.code == 0, ended.output
    user = bench.sh(f"stat -c %U /proc/{pid(bench, name)}")
    assert bench.sh(f"stat -c '%U %a' /etc/llamaherd/keys/{name}") == f"{user} 400"
    bench.declare(bench.rig())
    assert bench.deploy().code == 0
    assert bench.sh(f"id {user} 2>&1; ls /etc/llamaherd/keys/{name} 2>&1", check=False).count("no such user") == 1
    assert bench.sh(f"find / -xdev \\( -nouser -o -user {user} \\) -path '*llama*' 2>/dev/null", check=False) == ""
