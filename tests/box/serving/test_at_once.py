"""Several `herd up` of one rig at once: all end well, what one has done is done, and nothing is done twice."""

from concurrent.futures import ThreadPoolExecutor

from tests.box.bench import Bench, Ended

GEMMA = "/var/lib/llamaherd/models/local/*/gemma-3-270m-q4_k_m.gguf"


def at_once(bench: Bench, runs: int) -> list[Ended]:
    """So many runs, begun together; all of them must end well."""
    with ThreadPoolExecutor(runs) as pool:
        ended = list(pool.map(lambda _: bench.up(), range(runs)))
    failed = [each.output for each in ended if each.code != 0]
    assert not failed, failed[0]
    return ended


def starts(bench: Bench, unit: str, since: str) -> int:
    """How often a unit's server was started, by its journal."""
    return int(bench.sh(f"journalctl -q -u {unit} --since @{since} -o cat | grep -c '^Started '", check=False))


def test_one_changed_argument_is_one_restart(bench: Bench) -> None:
    rig = bench.rig()
    rig["instances"]["chat"]["context"] = 7168
    bench.declare(rig)
    since, before = bench.sh("date +%s"), bench.running()
    at_once(bench, 6)
    assert starts(bench, "llama-chat", since) == 1
    bench.unchanged(before, "chat")
    assert '"n_ctx":7168' in bench.ask("chat", "/props", key=bench.key())[1]


def test_one_changed_container_is_one_new_container(bench: Bench) -> None:
    rig = bench.rig()
    rig["instances"]["drafter"]["context"] = 2048
    bench.declare(rig)
    since, before = bench.sh("date +%s"), bench.running()
    at_once(bench, 6)
    events = f"docker events --since {since} --until $(date +%s) --filter type=container --filter event=create"
    assert bench.sh(f"timeout 60 {events} --format '{{{{.Action}}}}'").split() == ["create"]
    bench.unchanged(before, "drafter")
    assert '"n_ctx":2048' in bench.ask("drafter", "/props")[1]


def test_one_missing_model_is_sent_once(bench: Bench) -> None:
    sha256 = bench.rig()["models"]["gemma-3-270m"]["sha256"]
    bench.sh(f"rm {GEMMA}")
    ended = at_once(bench, 5)
    assert bench.sh(f"sha256sum {GEMMA}").split()[0] == sha256
    assert bench.sh("ls /var/lib/llamaherd/incoming") == ""
    assert any("s for another run, by " in each.output for each in ended)
    assert bench.answers("chat")


LOCK = "/run/llamaherd/locks/run"


def test_another_run_waits_or_ends_as_asked_and_its_lock_can_be_broken(bench: Bench) -> None:
    """The other run is held still on its host, as it writes down what it has done."""

    def declare(context: int) -> None:
        rig = bench.rig()
        rig["instances"]["chat"]["context"] = context
        bench.declare(rig)

    declare(5120)
    releases = "/run/llamaherd/locks/releases"
    bench.sh(
        f"systemd-run -q --unit=other flock {releases} sleep 600; while flock -n {releases} true; do sleep 0.1; done"
    )
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(bench.up, "--yes")
        bench.sh(f"until grep -qs ' since ' {LOCK}; do sleep 0.2; done")
        holder = bench.sh(f"cat {LOCK}")
        declare(6144)
        ended = bench.up("--yes", "--lock-wait", "0")
        assert ended.code == 1
        assert f"another run changes this host, by {holder}\n" in ended.output
        assert "`herd unlock box` breaks its lock" in ended.output
        broken = bench.herd("unlock", "box")
        assert (broken.code, broken.output) == (0, f"box: broke the lock of {holder}\n")
        bench.sh("systemctl stop other")
        assert other.result().code == 0, other.result().output
    assert bench.herd("unlock", "box").output == "box: no run holds the lock\n"
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output
