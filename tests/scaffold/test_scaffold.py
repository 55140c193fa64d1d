"""A fleet's folder and a rig's file as `herd init` writes them: they pass the check, and nothing is overwritten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from llamaherd.inventory.schema import LOCAL, Connect, Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.onhost.hardware import FoundGpu, FoundHost
from llamaherd.pipeline.fleet_files import examine_fleet
from llamaherd.scaffold import (
    ScaffoldError,
    connect_to,
    cuda_for,
    example_rig,
    fleet_files,
    gpu_names,
    holds_rigs,
    rig_name,
    rig_yaml,
    round_ram,
    write_files,
    written_gpus,
)
from llamaherd.text.numbers import parse_size
from tests.support.found_hosts import found_host
from tests.support.rigs import ROOT

DATA = Path(__file__).parents[1] / "data"
LOOKS = sorted(file.stem.removeprefix("look-") for file in DATA.glob("look-*.txt"))
DUO = Connect(host="duo.lan", user="tom", port=2222)


def seen(name: str) -> FoundHost:
    return found_host(name)


def rig_of(folder: Path, look: FoundHost, name: str = "duo", connect: Connect = DUO) -> Rig:
    """The rig that is written after a look, which must pass the check without an error."""
    write_files(folder, fleet_files({name: rig_yaml(look, name, connect)}))
    fleet, findings = examine_fleet(folder / f"{name}.yaml")
    assert [str(finding) for finding in findings if finding.severity == "error"] == []
    return fleet.rigs[name]


# --- a rig from a look ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOOKS)
def test_what_is_written_passes_the_check(tmp_path: Path, name: str) -> None:
    rig = rig_of(tmp_path, seen(name))
    assert (rig.connect.host, rig.connect.user, rig.connect.port) == ("duo.lan", "tom", 2222)
    assert rig.host.os == seen(name).os
    assert rig.host.cpu.cores == seen(name).cores
    (instance,) = rig.instances.values()
    assert instance.engine in rig.engines
    assert instance.model in rig.models


@pytest.mark.parametrize(
    ("name", "changes", "prebuilt"),
    [
        ("cpu-box", {}, False),
        ("cpu-box", {"cores": 3}, True),
        ("cpu-box", {"cores": 0, "threads": 2}, True),
        ("cpu-box", {"cores": 2, "arch": "aarch64"}, False),
        ("duo", {"cores": 2}, True),
        # Its C library is older than that of releases with CUDA.
        ("duo", {"cores": 2, "os": "ubuntu-22.04"}, False),
        ("duo", {"cores": 2, "os": "debian-12"}, False),
    ],
)
def test_a_host_with_few_cores_gets_the_authors_programs(
    tmp_path: Path, name: str, changes: dict[str, Any], prebuilt: bool
) -> None:
    engine = rig_of(tmp_path, replace(seen(name), **changes)).engines["main"]
    assert (engine.release, engine.ref) == (("b11434", None) if prebuilt else (None, "b11434"))


def test_two_cards(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, seen("duo"))
    assert rig.gpus
    assert {name: (card.model, card.uuid) for name, card in rig.gpus.cards.items()} == {
        "3090-ti": ("RTX 3090 Ti", "GPU-1f0a7c2b-5c1d-4e7a-9b1f-4c0e9a553f10"),
        "3090": ("RTX 3090", "GPU-7a0e4a53-0d9b-4a54-8d0a-52c1c3a1b7ee"),
    }
    assert all(card.architecture is None and card.memory is None for card in rig.gpus.cards.values())
    assert (rig.gpus.cuda, rig.gpus.driver, rig.host.ram) == ("13.0", None, 192 * 10**9)
    assert rig.instances["chat"].on == ("3090",)


def test_windows_around_it(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, seen("wsl"))
    assert rig.gpus
    assert rig.host.wsl
    assert (rig.gpus.driver, rig.host.wsl.keep_alive, rig.host.ram) == (None, True, 64 * 10**9)


def test_a_laptop(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, seen("laptop"))
    assert rig.gpus
    assert rig.gpus.cards["5090m"].model == "RTX 5090M"
    assert rig.host.cpu.performance == 8
    assert "takes no power limit" in (tmp_path / "duo.yaml").read_text()


def test_no_cards(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, seen("cpu-box"), connect=Connect(host=LOCAL))
    assert (rig.gpus, rig.connect.host, rig.instances["chat"].on) == (None, LOCAL, ())


def test_no_driver(tmp_path: Path) -> None:
    rig = rig_of(tmp_path, seen("no-driver"))
    assert rig.gpus
    assert rig.gpus.driver
    assert rig.gpus.cards["3070"].pci == "0000:01:00.0"
    assert "library version mismatch" in (tmp_path / "duo.yaml").read_text()


def test_a_card_that_nothing_is_known_of(tmp_path: Path) -> None:
    look = replace(seen("no-driver"), bus=(("0000:01:00.0", "NVIDIA Corporation Device 2b99 (rev a1)"),))
    assert rig_of(tmp_path, look).gpus is None
    assert "an NVIDIA GPU, Device 2b99, that llamaherd does not know" in (tmp_path / "duo.yaml").read_text()


TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), max_size=12)
NUMBERS = st.none() | st.integers(1, 10**6)
SEEN_CARDS = st.builds(
    FoundGpu,
    index=st.integers(0, 9),
    uuid=st.sampled_from(["GPU-1", "GPU-2", "MIG 1"]) | TEXTS,
    pci=st.sampled_from(["00000000:01:00.0", "00000000:09:00.0"]) | TEXTS,
    memory_mib=NUMBERS,
    power_limit=NUMBERS,
    default_power=NUMBERS,
    most_power=NUMBERS,
    driver=st.sampled_from(["580.95.05", "550.1", "[N/A]"]) | TEXTS,
    capability=st.sampled_from(["8.6", "12.0", "6.1", "[N/A]"]) | TEXTS,
    name=st.sampled_from(["NVIDIA GeForce RTX 3090", "Tesla P40", "null", "a: b #", "NVIDIA H100 NVL"]) | TEXTS,
)
LOOKED_AT = st.builds(
    FoundHost,
    os=st.sampled_from(["debian-13", "ubuntu-24.04"]),
    cpu=TEXTS,
    cores=st.integers(1, 256),
    threads=st.integers(1, 512),
    performance=st.none() | st.integers(1, 64),
    memory=st.integers(1 << 20, 1 << 42),
    free=st.integers(0, 1 << 44),
    wsl=st.booleans(),
    cuda=st.lists(st.sampled_from(["12.4", "12.8", "13.0", "13.2", "13.5", "old"]), max_size=3).map(tuple),
    cards=st.lists(SEEN_CARDS, max_size=3).map(tuple),
    bus=st.lists(st.tuples(st.just("0000:01:00.0"), TEXTS), max_size=1).map(tuple),
    refused=TEXTS,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150, deadline=None
)
@given(LOOKED_AT, TEXTS.filter(bool), TEXTS)
def test_whatever_a_host_says_the_file_is_a_rig(tmp_path: Path, look: FoundHost, host: str, user: str) -> None:
    try:
        connect = connect_to(host, user or None, 22)
    except ScaffoldError:
        reject()
    file = tmp_path / "duo.yaml"
    file.write_text(rig_yaml(look, "duo", connect), encoding="utf-8")
    rig = Rig.model_validate(read_yaml(file).data)
    assert (rig.connect.host, rig.connect.user) == (host, user or None)
    assert rig.host.ram <= look.memory
    assert set(rig.instances["chat"].on) <= set(rig.gpus.cards if rig.gpus else ())


def test_a_user_with_the_host_in_it_is_refused() -> None:
    with pytest.raises(ScaffoldError, match=r"'tom@duo\.lan' cannot be the user of a rig"):
        connect_to("duo.lan", "tom@duo.lan", 22)


@pytest.mark.parametrize(
    ("gib", "written"),
    [(3.8, "4GB"), (7.7, "8GB"), (13.5, "14GB"), (15.3, "16GB"), (31.1, "32GB"), (62.6, "64GB"), (94, "96GB")],
)
def test_memory_as_it_is_sold(gib: float, written: str) -> None:
    assert round_ram(int(gib * 2**30)) == written


@given(st.integers(10**6, 1 << 45))
def test_no_memory_is_made_up(memory: int) -> None:
    assert 0.5 * memory <= parse_size(round_ram(memory)) <= memory


@pytest.mark.parametrize(
    ("given_", "host", "own", "name"),
    [
        (None, "Duo.lan", "", "duo"),
        (None, "duo.lan", "ubuntu", "duo"),
        (None, "gpu-box", "ubuntu-server-2", "gpu-box"),
        (None, "192.168.1.40", "", "192.168.1.40"),
        (None, "192.168.1.40", "ubuntu", "ubuntu"),
        (None, "fe80::1", "ubuntu", "ubuntu"),
        (None, LOCAL, "Attic.lan", "attic"),
        (None, "my_host", "", "my_host"),
        (None, "Die Kiste", "", "die-kiste"),
        (None, "...", "", "rig"),
        (None, "defaults", "", "rig"),
        ("attic", "duo.lan", "ubuntu", "attic"),
    ],
)
def test_what_a_rig_is_called(given_: str | None, host: str, own: str, name: str) -> None:
    """By the name that was typed, which the next command is given: not by what the host calls itself."""
    assert rig_name(given_, host, own) == name


@pytest.mark.parametrize("name", ["Attic", "", "a b", "defaults", "x" * 41, "../x"])
def test_what_no_rig_can_be_called(name: str) -> None:
    with pytest.raises(ScaffoldError, match="cannot be called"):
        rig_name(name, "duo.lan")


# --- GPUs ---------------------------------------------------------------------------------------------------

CARD = seen("duo").cards[0]


@pytest.mark.parametrize(
    ("name", "capability", "memory", "written"),
    [
        ("NVIDIA GeForce RTX 3090", "8.6", 24576, ("RTX 3090", None, None)),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "12.0", 24463, ("RTX 5090M", None, None)),
        ("NVIDIA GeForce RTX 4070 SUPER", "8.9", 12282, ("RTX 4070 Super", None, None)),
        ("NVIDIA GeForce RTX 4060 Ti", "8.9", 16380, ("RTX 4060 Ti 16GB", None, None)),
        ("NVIDIA GeForce RTX 4060 Ti", "8.9", 8188, ("RTX 4060 Ti", None, None)),
        ("NVIDIA GeForce RTX 3080", "8.6", 12288, ("RTX 3080", None, 12288)),
        ("NVIDIA GeForce RTX 4090 D", "8.9", 24564, ("RTX 4090 D", "89", 24564)),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "8.6", 16384, ("RTX 3080M", "86", 16384)),
        ("NVIDIA H100 80GB HBM3", "9.0", 81559, ("H100", None, None)),
        ("NVIDIA H100 NVL", "9.0", 95830, ("H100", None, 95830)),
        ("NVIDIA A100-SXM4-40GB", "8.0", 40960, ("A100", None, 40960)),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 97887, ("RTX PRO 6000 Blackwell", None, None)),
        ("NVIDIA RTX A6000", "8.6", 49140, ("RTX A6000", None, None)),
        ("Tesla P40", "6.1", 24576, ("Tesla P40", "61", 24576)),
        ("NVIDIA GeForce RTX 3090", "[N/A]", None, ("RTX 3090", None, None)),
    ],
)
def test_what_a_card_is_called(
    name: str, capability: str, memory: int | None, written: tuple[str, str | None, int | None]
) -> None:
    look = FoundHost(cards=(replace(CARD, name=name, capability=capability, memory_mib=memory),))
    (card,) = written_gpus(look)
    assert (card.model, card.architecture, card.memory_mib) == written
    assert card.known


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1)", "RTX 3090"),
        ("NVIDIA Corporation GN22 [GeForce RTX 5090 Max-Q / Mobile] (rev a1)", "RTX 5090M"),
        ("NVIDIA Corporation GA104 [GeForce RTX 3070 Lite Hash Rate]", "RTX 3070"),
        ("NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)", "H100"),
        ("NVIDIA Corporation Device 2b85 (rev a1)", "Device 2b85"),
        ("", "unknown"),
    ],
)
def test_what_a_card_on_the_bus_is_called(name: str, model: str) -> None:
    assert [card.model for card in written_gpus(FoundHost(bus=(("0000:01:00.0", name),)))] == [model]


def test_cards_of_one_kind_are_told_apart() -> None:
    cards = tuple(replace(CARD, pci=f"0000000{n}:01:00.0", uuid=f"GPU-{n}") for n in (2, 1))
    written = written_gpus(FoundHost(cards=cards))
    assert [(name, card.uuid) for name, card in zip(gpu_names(written), written, strict=True)] == [
        ("3090-ti-1", "GPU-1"),
        ("3090-ti-2", "GPU-2"),
    ]


@pytest.mark.parametrize(
    ("installed", "driver", "capability", "cuda"),
    [
        ((), "580.95.05", "8.6", "13.0"),
        (("12.8", "13.0"), "580.95.05", "8.6", "13.0"),
        (("12.9", "13.2"), "595.1", "12.0", "12.9"),
        (("13.2",), "595.1", "12.0", "13.0"),
        (("12.4",), "580.95.05", "12.0", "13.0"),
        (("12.8", "13.0"), "570.1", "8.9", "12.8"),
        (("13.0",), "580.95.05", "6.1", "12.9"),
        (("12.10", "12.9"), "550.1", "8.6", "12.10"),
    ],
)
def test_which_toolkit(installed: tuple[str, ...], driver: str, capability: str, cuda: str) -> None:
    look = FoundHost(cuda=installed, cards=(replace(CARD, driver=driver, capability=capability, name="a card"),))
    assert cuda_for(look, written_gpus(look)) == cuda


# --- the folder ----------------------------------------------------------------------------------------------


def states(folder: Path) -> dict[str, Any]:
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.rglob("*") if file.is_file()}


def test_a_new_fleet_passes_the_check(tmp_path: Path) -> None:
    outcomes = write_files(tmp_path / "home" / "fleet", fleet_files({"attic": example_rig()}))
    assert {outcome.what for outcome in outcomes} == {"written"}
    fleet, findings = examine_fleet(tmp_path / "home" / "fleet")
    assert (list(fleet.rigs), findings) == (["attic"], ())


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    files = fleet_files({"attic": example_rig()})
    write_files(tmp_path, files)
    before = states(tmp_path)
    assert {outcome.what for outcome in write_files(tmp_path, files)} == {"unchanged"}
    assert states(tmp_path) == before


def test_what_is_there_stays(tmp_path: Path) -> None:
    files = fleet_files({"attic": example_rig()})
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine\n")
    kept = {outcome.file.name for outcome in write_files(tmp_path, files) if outcome.what == "kept"}
    assert kept == {"inventory.py", "deploy.py", "defaults.yaml", "README.md", ".gitignore", "attic.yaml"}
    assert all((tmp_path / name).read_text() == "mine\n" for name in kept)
    assert (tmp_path / ".herd/rig.schema.json").read_text() == files[".herd/rig.schema.json"]


def test_the_example_is_for_a_folder_without_rigs(tmp_path: Path) -> None:
    assert not holds_rigs(tmp_path / "new")
    write_files(tmp_path, fleet_files({}))
    assert not holds_rigs(tmp_path)
    (tmp_path / "duo.yml").touch()
    assert holds_rigs(tmp_path)


def test_a_link_into_nothing_is_somebodys(tmp_path: Path) -> None:
    (tmp_path / "README.md").symlink_to(tmp_path / "nowhere" / "else")
    with pytest.raises(ScaffoldError, match=r"README\.md"):
        write_files(tmp_path, fleet_files({}))


def test_a_place_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "fleet").write_text("a file")
    with pytest.raises(ScaffoldError, match=r"/fleet is not a folder"):
        write_files(tmp_path / "fleet", fleet_files({}))
    with pytest.raises(ScaffoldError, match=r"cannot write .*/fleet/below/.*: Not a directory"):
        write_files(tmp_path / "fleet" / "below", fleet_files({}))


def test_editors_find_the_schema_beside_the_file() -> None:
    files = fleet_files({"attic": example_rig(), "duo": rig_yaml(seen("duo"), "duo", DUO)})
    named = {name: re.match(r"# yaml-language-server: \$schema=(\S+)\n", text) for name, text in files.items()}
    found = {name: match[1] for name, match in named.items() if match}
    assert set(found) == {"attic.yaml", "duo.yaml", "defaults.yaml"}
    assert set(found.values()) <= set(files)


@pytest.mark.parametrize("where", ["here", "from elsewhere"])
def test_pyinfra_reads_the_fleet_of_the_folder(tmp_path: Path, where: str) -> None:
    """Whatever HERD_INVENTORY says: the folder that is named is meant."""
    rig = (ROOT / "inventory" / "box.yaml").read_text(encoding="utf-8").replace("rig: box", "rig: inner")
    write_files(tmp_path / "fleet", fleet_files({"inner": rig.replace("../.box", str(tmp_path))}))
    for name in re.findall(r"(?:file|archive|key|known_hosts): \.\./\.box/(\S+?)[,}\n]", rig):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    folder, named = (tmp_path / "fleet", "inventory.py") if where == "here" else (tmp_path, "fleet/inventory.py")
    ended = subprocess.run(
        [Path(sys.executable).parent / "pyinfra", named, "debug-inventory"],
        cwd=folder,
        env=os.environ | {"HERD_INVENTORY": "/nowhere", "PYINFRA_PROGRESS": "off", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "[inner]" in ended.stderr + ended.stdout
