"""Hosts that a person logs in to as `tom`, by their names, and what they fetch from the internet.

OpenSSH finds `~` by the password file, whatever HOME is. So programs run in a mount namespace, where files of the test
cover root's own `~/.ssh` and `/etc/hosts`.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from box.downloads import LLAMA_CPP
from box.host import BoxHost
from tests.box.slot import BUILT
from tests.lock.test_git_refs import git
from tests.support.github_server import REPOSITORY, Github
from tests.support.hub_server import Hub

TAG = "b11434"
ARCHIVE = f"llama-{TAG}-bin-ubuntu-x64.tar.gz"
_FIND = f"grep -ls {LLAMA_CPP.sha256} {BUILT}/*/manifest.json | head -n 1"
_PACK = f"cd $(dirname $({_FIND}))/bin && tar -czf - --transform 's,^,llama-{TAG}/,' llama-* | base64 -w 0"
_ADD_TOM = """
id tom >/dev/null 2>&1 || useradd --create-home --shell /bin/bash tom
echo 'tom ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/tom
install -d -o tom -g tom -m 0700 /home/tom/.ssh
install -o tom -g tom -m 0600 /home/owner/.ssh/authorized_keys /home/tom/.ssh/
"""
UNNAME = """
rm -f /etc/sudoers.d/tom; pkill -KILL -u tom; userdel --remove tom
sed '/[.]lan$/d' /etc/hosts >/run/hosts; cat /run/hosts >/etc/hosts
"""
"""Removes from a host what `named` has added."""


def address(host: BoxHost) -> str:
    """Return the address at which other hosts reach a host."""
    return host.exec("sh", "-c", "ip -o -4 address show dev eth0 | awk '{print $4}'").strip().partition("/")[0]


def named(hosts: Mapping[str, BoxHost], folder: Path) -> list[str]:
    """Name hosts for each other and for this machine. Return a command that starts what follows it with these names."""
    ssh, names = folder / "ssh", folder / "hosts"
    ssh.mkdir(mode=0o700)
    addresses = {name: address(host) for name, host in hosts.items()}
    lines = "".join(f"{each} {name}\n" for name, each in addresses.items())
    names.write_text(Path("/etc/hosts").read_text(encoding="utf-8") + lines)
    known, config = [], []
    for name, host in hosts.items():
        host.exec("sh", "-c", f"{_ADD_TOM} printf '{lines}' >>/etc/hosts")
        known.append(" ".join([f"{name},{addresses[name]}", *host.known_hosts.read_text().split()[1:]]))
        config.append(f"Host {name}\n    IdentityFile {host.key}\n    IdentitiesOnly yes")
    # A host that is switched off may not close its connections.
    config.append("Host *\n    ServerAliveInterval 5\n    ServerAliveCountMax 2")
    (ssh / "known_hosts").write_text("\n".join([*known, ""]))
    (ssh / "config").write_text("\n".join([*config, ""]))
    over = f"mkdir -p ~/.ssh && mount --bind {shlex.quote(str(ssh))} ~/.ssh && mount --bind {names} /etc/hosts"
    return ["unshare", "--mount", "sh", "-c", f'{over} && exec "$@"', "sh"]


def has_engine(host: BoxHost) -> bool:
    """Return whether a host can read a finished build of llama.cpp, which any host of tests has made."""
    return host.exec("sh", "-c", _FIND, check=False) != ""


@contextmanager
def internet(host: BoxHost, folder: Path, models: Mapping[str, Mapping[str, Path]]) -> Iterator[dict[str, str]]:
    """Serve models as the hub does, and a build of llama.cpp as its authors' release. Yield the environment for both.

    `host` can read the build, and fetches from the address of this machine.
    """
    here = host.exec("sh", "-c", "ip route show default | cut -d ' ' -f 3").strip()
    repository = folder / "git" / REPOSITORY
    repository.mkdir(parents=True)
    git(repository, "init", "-q", "--bare")
    commit = git(repository, "commit-tree", git(repository, "mktree"), "-m", TAG)
    git(repository, "update-ref", f"refs/tags/{TAG}", commit)
    releases = {TAG: {ARCHIVE: base64.b64decode(host.exec("sh", "-c", _PACK))}}
    own = {name: value for name, value in os.environ.items() if name not in ("HERD_INVENTORY", "HF_TOKEN")}
    with Github(releases, here) as github, Hub(models, host=here) as hub:
        yield {
            **own,
            "NO_COLOR": "1",
            "GITHUB_API_URL": github.url,
            "HF_ENDPOINT": hub.url,
            "NO_PROXY": "*",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.file://{folder}/git/.insteadOf",
            "GIT_CONFIG_VALUE_0": "https://github.com/",
        }
