"""The ground that the tests of drivers stand on: real apt against a repository of our own, a real reboot."""

from tests.box.gpus.rigs import GpuRig
from tests.support.apt_repository import AptRepository
from tests.support.nvidia_packages import pinning

UPDATE = "apt-get -q -o APT::Update::Error-Mode=any update 2>&1"
OWN = "/etc/apt/sources.list.d/own.list"


def known(rig: GpuRig, repository: AptRepository) -> str:
    """What apt says to a repository, when it shall trust the rig's own key and no other."""
    source = f"deb [signed-by=/etc/apt/keyrings/own.asc] {repository.url}/ /"
    rig.sh(f"mkdir -p /etc/apt/keyrings; printf '%s' '{rig.repository.key}' >/etc/apt/keyrings/own.asc")
    rig.sh(f"echo '{source}' >{OWN}")
    return rig.sh(UPDATE, check=False)


def test_a_rig_has_its_card_and_a_reboot_is_one(rig: GpuRig) -> None:
    looks = "cat /proc/sys/kernel/random/boot_id; ls -A /sys/bus/pci/devices /sys/module; ls -d /run/mark /etc/mark"
    rig.sh("touch /run/mark /etc/mark")
    boot, *before = rig.sh(looks).splitlines()
    rig.host.reboot()
    next_boot, *after = rig.sh(looks, check=False).splitlines()
    assert next_boot != boot
    assert before == ["/sys/bus/pci/devices:", "0000:01:00.0", "", "/sys/module:", "/etc/mark", "/run/mark"]
    assert after == before[:-1]


def test_apt_takes_only_what_the_key_has_signed(rig: GpuRig) -> None:
    assert "E:" not in known(rig, rig.repository)
    with AptRepository(pinning("595"), host=rig.repository.host) as stranger:
        said = known(rig, stranger)
    rig.sh(f"rm {OWN}")
    assert "E:" in said
    assert "NO_PUBKEY" in said or "Missing key" in said, said


def test_the_metapackages_would_lead_astray(rig: GpuRig) -> None:
    """Else a test that nobody was led astray would prove nothing."""
    known(rig, rig.repository)
    said = rig.sh("apt-get -s install --no-install-recommends cuda-drivers-580")
    rig.sh(f"rm {OWN}")
    assert "Inst nvidia-driver-cuda (590.48.01-1" in said
    assert "Inst cuda-drivers-580 (580.105.08-1" in said
