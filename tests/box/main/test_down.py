"""A rig is removed from its host: first what serves, then everything. Afterwards the host is set up again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.box.bench import Bench

KEPT = ("/opt/llamaherd/builds", "/var/lib/llamaherd/models")
CACHE = "/var/cache/llamaherd/ccache"
OURS = (
    "find /etc /opt /srv /var/cache /var/lib /var/log /run/systemd/system "
    "\\( -path /var/lib/docker -o -path /var/lib/containerd -o -path /opt/aside \\) -prune -o -name '*llama*' -print "
    f"| grep -v -e '^/etc/apt/' -e '^/etc/docker/' -e '^/etc/ssh/' -e '^{CACHE.rpartition('/')[0]}' || :"
)

IMAGES = "docker image ls --format '{{.Repository}}:{{.Tag}}' --filter reference='llamaherd/*' | grep -v '<none>'"


@pytest.fixture
def removable(bench: Bench) -> Iterator[Bench]:
    """The box, whose builds, models and images are stored in another place, and whose compiler cache is hidden.

    The cache is a volume of all boxes. Afterwards the builds are back, so that nothing is compiled again.
    """
    for path in KEPT:
        bench.sh(f"mkdir -p /opt/aside{path} && cp -a {path}/. /opt/aside{path}/")
    bench.sh(f"for each in $({IMAGES}); do docker tag $each aside/${{each#*/}}; done; mount -t tmpfs none {CACHE}")
    try:
        yield bench
    finally:
        for path in KEPT:
            bench.sh(f"rm -rf {path} && mkdir -p {path.rpartition('/')[0]} && mv /opt/aside{path} {path}")
        back = IMAGES.replace("llamaherd/*", "aside/*")
        bench.sh(
            f"for each in $({back}); do docker tag $each llamaherd/${{each#*/}}; docker rmi $each; done", check=False
        )
        bench.sh(f"rm -rf /opt/aside; umount {CACHE}", check=False)
        ended = bench.up("--yes")
        assert ended.code == 0, ended.output


def test_what_serves_goes_and_then_everything(removable: Bench) -> None:
    packages = removable.sh("dpkg-query -W | sort")
    dry = removable.herd("down", "box", "--purge", "--dry-run")
    assert dry.code == 0, dry.output
    assert removable.answers("chat")

    services = removable.herd("down", "box", "--yes")
    assert services.code == 0, services.output
    assert "box ✓ removed in " in services.output
    assert removable.sh("ls /etc/systemd/system | grep llama || :") == ""
    assert removable.sh("docker ps -aq --filter name=llama") == ""
    assert removable.sh("getent passwd | grep -c '^llama-chat:' || :") == "0"
    assert removable.sh("ls /etc/llamaherd/keys") == ""
    assert removable.sh("ss -Hltn 'sport = :8080'") == ""
    assert removable.sh(f"ls {KEPT[0]}") != ""
    again = removable.herd("down", "box", "--yes")
    assert (again.code, again.output.splitlines()[1]) == (0, "box: nothing to remove"), again.output

    purged = removable.herd("down", "box", "--purge", "--yes")
    assert purged.code == 0, purged.output
    assert removable.sh(OURS) == ""
    assert removable.sh("getent passwd | grep '^llama' || :") == ""
    assert removable.sh(f"{IMAGES} || :") == ""
    assert removable.sh("systemctl list-units --all --no-legend 'llama*'") == ""
    assert removable.sh("dpkg-query -W | sort") == packages
    again = removable.herd("down", "box", "--purge", "--yes")
    assert (again.code, again.output.splitlines()[-1]) == (0, "box: nothing to remove"), again.output
