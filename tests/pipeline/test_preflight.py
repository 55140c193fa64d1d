"""The table of what a host is: rows and refusals over made-up hosts, named by what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from llamaherd.host.state import HostState
from llamaherd.pipeline.preview import Preflight, table_lines, unreachable_host
from llamaherd.plan import Plan
from llamaherd.reference.cards import CARDS, is_known_model, is_other_model, model_of
from llamaherd.role.preflight import PreflightRow, Refusal
from roles import engines, gpus
from roles.power import power_refusals
from tests.support.ours import parse_state, refusals, survey
from tests.support.rigs import GONE, changed, converged, gpu_rig, planned, wsl_rig

KERNEL = "6.8.0-88-generic"


def rig(cards: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Any] | None = None) -> Plan:
    """A plan with these GPUs, all of which a server runs on."""
    declared = changed(gpu_rig(), {f"instances/{name}": GONE for name in ("worker", "boxed", "small")})
    declared["gpus"]["cards"] = dict(cards)
    declared["instances"]["reasoner"]["on"] = list(cards)
    return planned(declared, changes)


def seen_of(plan: Plan, *said: str, without: tuple[str, ...] = ("card", "virtual")) -> HostState:
    """A host that is as planned but for what is said of its machine, and has none of what it is to be without."""
    dropped = tuple(f"machine\t{what}\t" for what in without)
    lines = [line for line in converged(plan, {}) if not line.startswith(dropped)]
    return parse_state([*lines, *(f"machine\t{line}".replace(" | ", "\t") for line in said)])


def of(found: Preflight, what: str) -> PreflightRow:
    (row,) = [row for row in found.rows if row.what == what]
    return row


TI, OLD, NEW = {"model": "RTX 2080 Ti", "uuid": "GPU-1"}, {"model": "RTX 3090"}, {"model": "RTX 5060 Ti 16GB"}
GB10 = {"model": "GB10", "architecture": "121", "memory": "119GiB"}

FINE = {
    "two mixed generations": (
        {"a": TI, "b": {**NEW, "uuid": "GPU-2"}},
        ["card | 0000:01:00.0 | 2d04 | GB206 [GeForce RTX 5060 Ti] | -", "card | 0000:21:00.0 | 1e07 | - | nouveau"],
    ),
    "4090": ({"a": {"model": "RTX 4090"}}, ["card | 0000:01:00.0 | 2684 | - | -"]),
    "laptop 5090M": ({"a": {"model": "RTX 5090M"}}, ["laptop", "card | 0000:01:00.0 | 2c58 | - | -"]),
    "laptop by its long name": (
        {"a": {"model": "NVIDIA GeForce RTX 5090 Laptop GPU", "architecture": "120", "memory": "24463MiB"}},
        ["card | 0000:01:00.0 | - | GB203M / GN22-X11 [GeForce RTX 5090 Max-Q / Mobile] | -"],
    ),
    "GB10": ({"a": GB10}, ["card | 000f:01:00.0 | 2e12 | Device | -"]),
    "addresses of two lengths": (
        {"a": {**OLD, "pci": "01:00.0"}, "b": {**OLD, "pci": "00000000:21:00.0"}},
        ["card | 0000:21:00.0 | 2204 | - | -", "card | 0000:01:00.0 | 2204 | - | -"],
    ),
    "numbers": (
        {"a": {**NEW, "index": 1}, "b": {**OLD, "index": 0}},
        ["card | 0000:41:00.0 | 2d04 | - | -", "card | 0000:01:00.0 | 2204 | - | -"],
    ),
    "one of two cards": ({"a": OLD}, ["card | 0000:01:00.0 | 2684 | - | -", "card | 0000:02:00.0 | 2204 | - | -"]),
    "a card that is not known here": ({"a": OLD}, ["card | 0000:01:00.0 | ffff | - | -"]),
    "a model that is not known here": (
        {"a": {"model": "GeForce NEXT", "architecture": "120", "memory": "24GiB"}, "b": {**OLD, "uuid": "GPU-2"}},
        ["card | 0000:01:00.0 | 2204 | - | -", "card | 0000:02:00.0 | ffff | - | -"],
    ),
    "a virtual machine with its card": ({"a": OLD}, ["virtual | kvm", "card | 0000:06:00.0 | 2204 | - | -"]),
    "a container that sees its host's bus": (
        {"a": {**OLD, "index": 0}},
        ["virtual | docker", "card | 0000:01:00.0 | 2684 | - | -", "card | 0000:02:00.0 | 2204 | - | -"],
    ),
    "a container whose bus is hidden": ({"a": OLD}, ["virtual | docker", "card | - | - | NVIDIA GeForce RTX 3090 | -"]),
}


def machine_refusals(plan: Plan, seen: HostState) -> list[Refusal]:
    """What the machine under the host is not: GPUs, and compilers."""
    return [problem for role in (gpus.ROLE, engines.ROLE) for problem in role.refusals(plan, seen)]


@pytest.mark.parametrize(("cards", "said"), FINE.values(), ids=FINE)
def test_a_host_that_is_fine_is_not_refused(cards: Mapping[str, Mapping[str, Any]], said: list[str]) -> None:
    plan = rig(cards)
    found = survey(plan, seen_of(plan, *said), {})
    assert found.refused == ()
    assert all("not there" not in row.found for row in found.rows)


REFUSED = {
    "none at all": (
        {"a": TI, "b": {**OLD, "uuid": "GPU-2"}},
        ["virtual | none"],
        "this host shows no NVIDIA GPU, and the inventory declares `a`, `b`",
        "lspci -d 10de:",
    ),
    "a container without": ({"a": OLD}, ["virtual | docker"], "no NVIDIA GPU", "container (docker): start it with"),
    "a virtual machine without": ({"a": OLD}, ["virtual | kvm"], "no NVIDIA GPU", "virtual machine (kvm): pass"),
    "kept for others": (
        {"a": OLD},
        ["virtual | none", "card | 0000:01:00.0 | 2204 | - | vfio-pci"],
        "all NVIDIA GPUs of this host are kept for virtual machines",
        "take them from there",
    ),
    "another model": (
        {"a": OLD},
        ["card | 0000:01:00.0 | 2206 | - | -"],
        "GPU `a` is declared as RTX 3090, and is RTX 3080 at 0000:01:00.0",
        "write `model: RTX 3080`, or",
    ),
    "another model by name": (
        {"a": {"model": "RTX 4090"}},
        ["card | 0000:01:00.0 | - | TU104 [GeForce RTX 2080 SUPER] | -"],
        "GPU `a` is declared as RTX 4090, and is RTX 2080 Super at 0000:01:00.0",
        "write `model: RTX 2080 Super` and its `architecture:`, or",
    ),
    "a desktop's for a laptop's": (
        {"a": {"model": "RTX 5090M"}},
        ["card | 0000:01:00.0 | 2b85 | - | -"],
        "is declared as RTX 5090M, and is RTX 5090",
        "`model: RTX 5090`",
    ),
    "one less": (
        {"a": {**OLD, "uuid": "GPU-1"}, "b": {**OLD, "uuid": "GPU-2"}},
        ["card | 0000:01:00.0 | 2204 | - | -"],
        "GPU `b` (RTX 3090) is not in this host: there are fewer GPUs than declared",
        "there is RTX 3090 at 0000:01:00.0",
    ),
    "another slot": (
        {"a": {**OLD, "pci": "0000:41:00.0"}},
        ["card | 0000:01:00.0 | 2204 | - | -"],
        "GPU `a` (RTX 3090) is not in this host: nothing is at 0000:41:00.0",
        "there is RTX 3090 at 0000:01:00.0",
    ),
    "a number too high": (
        {"a": {**OLD, "index": 3}},
        ["card | 0000:01:00.0 | 2204 | - | -"],
        "there are not 4 GPUs",
        "there is RTX 3090 at 0000:01:00.0",
    ),
}


@pytest.mark.parametrize(("cards", "said", "message", "way_out"), REFUSED.values(), ids=REFUSED)
def test_cards_that_are_not_as_declared(
    cards: Mapping[str, Mapping[str, Any]], said: list[str], message: str, way_out: str
) -> None:
    plan = rig(cards)
    seen = seen_of(plan, *said)
    (problem,) = machine_refusals(plan, seen)
    assert message in problem.message
    assert way_out in problem.help
    (row,) = survey(plan, seen, {}).refused
    assert (row.why, row.help) == (problem.message, problem.help)
    assert row.what.startswith("GPU")


SHOWN = "card\tGPU-1, 00000000:01:00.0, Enabled, 350.00, 350.00, 100.00, 366.00, 210, 30, NVIDIA GeForce RTX 3090"


@pytest.mark.parametrize(
    ("at", "bus"),
    [
        ({"uuid": "GPU-7"}, ["card | 0000:01:00.0 | 2204 | - | nvidia"]),
        ({"pci": "0000:41:00.0"}, ["virtual | docker"]),
        # In a container, the bus has GPUs that it was not given.
        ({"index": 1}, ["virtual | docker", *(f"card | 0000:0{n}:00.0 | 2204 | - | nvidia" for n in (1, 2))]),
    ],
)
def test_a_card_that_the_driver_does_not_show_is_not_in_this_host(at: dict[str, Any], bus: list[str]) -> None:
    plan = rig({"a": {**OLD, **at}}, {"gpus/cards/a/power_limit": "280W"})
    seen = parse_state([*(f"machine\t{line}".replace(" | ", "\t") for line in bus), SHOWN])
    (problem,) = machine_refusals(plan, seen)
    assert problem.message == f"GPU `a` ({plan.cards[0].at}) is not in this host"
    assert problem.help.startswith("there is NVIDIA GeForce RTX 3090 (GPU-1 at 0000:01:00.0); correct the inventory")
    assert power_refusals(plan, seen) == [], "it is said once"


def test_a_driver_that_is_to_come_may_show_a_card_that_this_one_does_not() -> None:
    plan = rig({"a": {**OLD, "uuid": "GPU-7"}}, {"gpus/driver": {"branch": 580}})
    assert plan.driver
    bus = "machine\tcard\t0000:01:00.0\t2204\t-\tnvidia"
    packages = [f"nvidia\tpackage\t{name}\t580.95.05-1\tinstalled" for name in plan.driver.packages]
    old, new = "nvidia\tloaded\t535.261.03", "nvidia\tloaded\t580.95.05"
    assert machine_refusals(plan, parse_state([bus, SHOWN, old, *packages])) == []
    assert machine_refusals(plan, parse_state([bus, SHOWN, new, *packages[1:]])) == []
    assert len(machine_refusals(plan, parse_state([bus, SHOWN, new, *packages]))) == 1


def test_a_card_is_found_by_its_uuid_where_the_driver_answers() -> None:
    plan = rig({"a": {**OLD, "uuid": "GPU-1"}, "b": {"model": "RTX 4090", "uuid": "GPU-2"}})
    bus = [f"machine\tcard\t0000:0{number}:00.0\t2204\t-\tnvidia" for number in (1, 2)]
    cards = [SHOWN, SHOWN.replace("GPU-1", "GPU-2").replace(":01:", ":02:")]
    (problem,) = machine_refusals(plan, parse_state([*bus, *cards]))
    assert problem.message == "GPU `b` is declared as RTX 4090, and is RTX 3090 at 0000:02:00.0"


def test_what_is_not_known_is_no_problem() -> None:
    plan = rig({"a": OLD})
    seen = seen_of(plan, without=("card", "bus", "virtual", "kernel", "memory", "boot", "headers"))
    found = survey(plan, seen, {})
    assert [row for row in found.rows if row.verdict != "ok"] == []
    assert of(found, "GPUs").found == "not known before there is a driver"
    # A driver that answers knows better than a bus which shows none.
    dropped = [line for line in converged(plan, {}) if not line.startswith("machine\tcard")]
    assert machine_refusals(plan, parse_state(dropped)) != []
    assert machine_refusals(plan, parse_state([*dropped, SHOWN])) == []


def test_under_wsl_there_is_no_bus_to_look_at() -> None:
    declared = {**wsl_rig(), "gpus": {"cuda": "13.0", "cards": {"a": OLD}}}
    plan = planned(declared)
    found = survey(plan, parse_state([*converged(plan, {"chat": "key"}), "machine\tbus\t4"]), {})
    assert found.ok
    assert (of(found, "kind").found, of(found, "GPUs").found) == ("WSL", "Windows' to show")


def test_a_wsl_that_is_not_declared_is_said_once() -> None:
    plan = rig({"a": OLD})
    seen = parse_state([*converged(plan, {}), "wsl\trelease\t6.6.87.2-microsoft-standard-WSL2"])
    (row,) = survey(plan, seen, {}).refused
    assert (row.what, row.found) == ("kind", "WSL")


COMPILER = "engines/main/options"


@pytest.mark.parametrize("said", ["g++-13", "/usr/bin/g++-13"])
def test_a_compiler_that_a_build_lacks(said: str) -> None:
    plan = rig({"a": OLD}, {COMPILER: {"CMAKE_CUDA_HOST_COMPILER": said}})
    with_card = [f"build\t{plan.builds[0].id}\tdone", *(f"machine\tgcc\t{version}" for version in (12, 15))]
    lines = [line for line in converged(plan, {}) if not line.startswith("build\t")] + with_card[1:]
    (problem,) = machine_refusals(plan, parse_state(lines))
    assert "must be compiled with g++-13, which is not installed" in problem.message
    row = of(survey(plan, parse_state(lines), {}), "compilers")
    assert (row.verdict, row.found) == ("refused", "g++ 12, g++ 15")
    assert row.wanted == "up to g++ 15 for CUDA 13.0; g++-13"
    # There already, about to be installed, or no longer needed.
    assert machine_refusals(plan, parse_state([*lines, "machine\tgcc\t13"])) == []
    assert machine_refusals(plan.model_copy(update={"packages": (*plan.packages, "g++-13")}), parse_state(lines)) == []
    assert machine_refusals(plan, parse_state([*lines, with_card[0]])) == []


def test_a_compiler_elsewhere_is_not_judged() -> None:
    plan = rig({"a": OLD}, {COMPILER: {"CMAKE_CUDA_HOST_COMPILER": "/opt/gcc/bin/g++-13"}})
    lines = [line for line in converged(plan, {}) if not line.startswith("build\t")]
    assert machine_refusals(plan, parse_state(lines)) == []


NOTES = {
    "less RAM": (["memory | 100000000"], "RAM", "102 GB", "what is planned for RAM may not fit"),
    "more RAM": (
        ["memory | 263000000"],
        "RAM",
        "269 GB",
        "the inventory declares 192 GB of RAM, but the host has 269 GB",
    ),
    "fewer cores": (["cores | 2"], "CPU", "2 cores", "declares 12 cores, but the host has 2"),
    "an AMX that is not declared": (["amx"], "AMX", "yes", "holds most matrices twice"),
    "a kernel that waits": (["kernel | 6.8.0-88-generic | 6.8.0-90-generic"], "kernel", KERNEL, "next boot starts 6.8"),
    "Secure Boot": (["secure-boot | on", "mok | new"], "Secure Boot", "on, the key for modules is not", "is enrolled"),
    "Secure Boot and no key": (["secure-boot | on"], "Secure Boot", "on, no enrolled key", "once the key that signs"),
    "nouveau": (
        ["card | 0000:01:00.0 | 2204 | - | nouveau", "nouveau"],
        "driver",
        "GPUs are bound to nouveau",
        "nouveau is loaded",
    ),
    "no headers": ([], "kernel headers", "none", f"there are no headers for {KERNEL}"),
    "a full /boot": (["boot | 90000000"], "/boot", "90.0 MB free", "may not do for another kernel"),
    "an apt that runs": (["holder | apt-get (4711)"], "packages", "held by apt-get (4711)", "a run waits for it"),
    "packages on hold": (
        ["held | libnvidia-compute", "held | vim"],
        "packages",
        "on hold: libnvidia-compute",
        "on hold",
    ),
}


@pytest.mark.parametrize(("said", "what", "found", "why"), NOTES.values(), ids=NOTES)
def test_what_a_person_should_know(said: list[str], what: str, found: str, why: str) -> None:
    plan = rig({"a": OLD})
    parts = {line.split(" ")[0] for line in said} | ({"headers"} if what == "kernel headers" else set())
    seen = seen_of(plan, *said, without=tuple(parts))
    table = survey(plan, seen, {})
    row = of(table, what)
    assert row.verdict == "note"
    assert found in row.found
    assert why in row.why
    assert row.help
    assert table.ok


def test_an_amx_that_is_declared_and_not_there_is_noted() -> None:
    plan = rig({"a": OLD})
    seen = seen_of(plan)
    assert not any(row.what == "AMX" for row in survey(plan, seen, {}).rows)
    row = of(survey(plan.model_copy(update={"amx": True}), seen, {}), "AMX")
    assert (row.verdict, row.found) == ("note", "no")


def test_a_host_that_is_as_planned_has_nothing_to_say() -> None:
    plan = rig({"a": {**OLD, "pci": "0000:01:00.0"}})
    found = survey(plan, parse_state(converged(plan, {})), {})
    assert [row for row in found.rows if row.verdict != "ok"] == []
    assert of(found, "GPU a") == PreflightRow("GPU a", "RTX 3090 at 0000:01:00.0", "RTX 3090 at 0000:01:00.0")
    assert of(found, "kind").found == "bare metal"
    assert of(found, "disk /var/lib/llamaherd/models").found == "1.0 TB free"
    assert of(found, "ports") == PreflightRow("ports", "8001 in use", "8001")
    assert len({row.what for row in found.rows}) == len(found.rows)


def test_a_container_is_not_asked_for_less_ram_than_its_host_has() -> None:
    plan = rig({"a": OLD})
    seen = seen_of(plan, "virtual | docker", "memory | 800000000", without=("memory", "virtual"))
    assert of(survey(plan, seen, {}), "RAM").verdict == "ok"


def test_every_problem_is_in_the_table_once() -> None:
    plan = rig(
        {"a": {**OLD, "uuid": "GPU-1", "power_limit": "300W"}, "b": {**OLD, "uuid": "GPU-2"}},
        {"host/ram": "64GB", COMPILER: {"CMAKE_CUDA_HOST_COMPILER": "g++-13"}},
    )
    seen = parse_state(
        [
            *("os\tdebian-12", "arch\tx86_64", "listens\t1F41", "wsl\trelease\t6.6-microsoft-standard-WSL2"),
            *("free\t/var/lib\t1000\tsda", "store\t/srv\t1000\tsdb\tnfs\tro"),
            *(f"machine\tkernel\t{KERNEL}\t{KERNEL}", "machine\tbus\t3", "driver\tthere is no nvidia-smi"),
        ]
    )
    problems = refusals(plan, seen, {})
    # System, systemd, WSL, compiler, power, both disks too small and one of them a network's, and a port.
    assert len(problems) == 9
    refused = survey(plan, seen, {}).refused
    assert sorted((row.why, row.help) for row in refused) == sorted((each.message, each.help) for each in problems)
    assert {row.what for row in refused} == {
        *("system", "systemd", "kind", "compilers", "power", "disk /var/lib", "disk /srv", "ports")
    }


def test_a_problem_about_nothing_known_has_a_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = rig({"a": OLD})
    extra = [Refusal("one", "do"), Refusal("two", "do", "driver"), Refusal("three", "do", "driver")]
    monkeypatch.setattr("llamaherd.pipeline.preview.refusals", lambda *_: extra)
    found = survey(plan, parse_state(converged(plan, {})), {})
    assert [(row.what, row.why) for row in found.refused] == [("driver", "two"), ("driver", "three"), ("host", "one")]


def test_the_table_as_text() -> None:
    rows = [
        PreflightRow("GPU a", "RTX 3080", "RTX 3090", "refused", "why", "help"),
        PreflightRow("RAM", "1 GB", "", "note", "w", "h"),
    ]
    assert table_lines(rows) == [
        "       found     wanted",
        "GPU a  RTX 3080  RTX 3090  refused",
        "RAM    1 GB                note",
    ]


def test_a_host_that_cannot_be_asked_is_one_row() -> None:
    found = unreachable_host("duo", "nothing listens", "start it")
    assert not found.ok
    assert found.as_json() == {
        "rig": "duo",
        "ok": False,
        "rows": [
            {
                "what": "host",
                "found": "unreachable",
                "wanted": "",
                "verdict": "refused",
                "why": "nothing listens",
                "help": "start it",
            }
        ],
    }


@pytest.mark.parametrize("model", CARDS)
def test_every_card_with_a_known_architecture_can_be_told_by_its_id(model: str) -> None:
    assert is_known_model(model)


@pytest.mark.parametrize(
    ("device", "name", "model"),
    [
        ("2d04", "", "RTX 5060 Ti"),
        ("2e12", "Device", "GB10"),
        ("", "AD103 [GeForce RTX 4080 SUPER]", "RTX 4080 Super"),
        ("", "NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090M"),
        ("", "AD107M [GeForce RTX 4060 Max-Q / Mobile]", "RTX 4060M"),
        ("ffff", "Device", None),
        ("", "", None),
    ],
)
def test_models_by_what_the_bus_says(device: str, name: str, model: str | None) -> None:
    assert model_of(device, name) == model


@pytest.mark.parametrize(
    ("declared", "found", "other"),
    [
        ("RTX 3090", "RTX 3080", True),
        ("RTX 4060 Ti 16GB", "RTX 4060 Ti", False),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", False),
        ("RTX 4090", "RTX 4090M", True),
        ("my own name for it", "RTX 3090", False),
    ],
)
def test_models_that_are_others(declared: str, found: str, other: bool) -> None:
    assert is_other_model(declared, found) is other
