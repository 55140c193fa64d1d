"""The box's host: what a deployment may count on, and that it is nobody else's."""

import subprocess

from box.host import BoxHost


def test_its_user_gets_in_by_key_and_becomes_root(ssh: list[str]) -> None:
    ended = subprocess.run([*ssh, "sudo", "-n", "id", "-u"], capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "0", ended.stderr


def test_root_does_not_get_in(ssh: list[str]) -> None:
    ended = subprocess.run([*ssh[:-1], "root@127.0.0.1", "true"], capture_output=True, text=True, check=False)
    assert ended.returncode == 255
    assert "Permission denied" in ended.stderr


def test_it_is_the_same_host_after_it_was_started_again(box_host: BoxHost, ssh: list[str]) -> None:
    box_host.exec("touch", "/etc/still-here")
    box_host.up()
    ended = subprocess.run([*ssh, "test", "-e", "/etc/still-here"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_only_the_network_part_of_proc_sys_can_be_written(box_host: BoxHost) -> None:
    for setting, writable in {"net/ipv4/ip_forward": "yes", "vm/swappiness": "no", "kernel/hostname": "no"}.items():
        script = f"test -w /proc/sys/{setting} && echo yes || echo no"
        assert box_host.exec("sh", "-c", script).strip() == writable, setting
