"""The servers serve, and only those who have their key."""

import pytest

from tests.box.bench import PORTS, Bench


@pytest.mark.parametrize("instance", PORTS)
def test_models_answer(converged: Bench, instance: str) -> None:
    assert converged.answers(instance).strip()


def test_who_has_no_key_gets_nothing(converged: Bench) -> None:
    data = '{"messages":[{"role":"user","content":"Hello"}],"max_tokens":1}'
    for key in ("", "wrong"):
        status, body = converged.ask("chat", "/v1/chat/completions", data, key)
        assert status == 401, body


def test_the_key_is_nowhere_else_on_the_host(converged: Bench) -> None:
    # The pattern comes from a file: in grep's own arguments it would be found.
    converged.sh(f"umask 077; printf %s '{converged.key()}' >/run/canary")
    found = converged.sh(
        "{ grep -lF -f /run/canary /proc/[0-9]*/cmdline /proc/[0-9]*/environ;"
        " ps axeww | grep -F -f /run/canary;"
        " journalctl -q --no-pager | grep -F -f /run/canary;"
        " docker inspect $(docker ps -aq) | grep -F -f /run/canary;"
        " docker logs llama-drafter 2>&1 | grep -F -f /run/canary;"
        " grep -rlF -f /run/canary /etc /opt /tmp /var/tmp /var/log /var/lib/llamaherd /home /root;"
        " } 2>/dev/null; rm -f /run/canary",
        check=False,
    )
    # What serves is kept, to be put back: for root alone.
    kept = converged.sh(
        "echo /var/lib/llamaherd/kept/llama-chat/$(readlink /var/lib/llamaherd/kept/llama-chat/last)/key"
    )
    assert sorted(found.splitlines()) == ["/etc/llamaherd/keys/chat", kept]


def test_nothing_of_ours_can_be_changed_by_others(converged: Bench) -> None:
    folders = "/opt/llamaherd /etc/llamaherd /var/lib/llamaherd /etc/systemd/system"
    assert converged.sh(f"find {folders} ! -type l -perm /022") == ""
