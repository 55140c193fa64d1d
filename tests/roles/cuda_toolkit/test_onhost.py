"""The toolkit's verb on a played host: what apt would do besides is found before anything is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from llamaherd.onhost.apt import LOG
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import find_verb
from llamaherd.reference.packages import NEVER_INSTALLED
from roles.cuda_toolkit import DRIVER
from roles.cuda_toolkit.onhost import InstallInput, install
from tests.support.hostile import PLAIN
from tests.support.service_host import ServiceHost, killed_everywhere

PACKAGE, NVCC = "cuda-toolkit-13-0", "/usr/local/cuda-13.0/bin/nvcc"
GIVEN = InstallInput("13.0", PACKAGE, "cuda-nvcc-13-0", NVCC, (*NEVER_INSTALLED, *DRIVER))
PLANNED = (
    f"Inst cuda-nvcc-13-0 (13.0 NVIDIA [amd64])\nInst {PACKAGE} (13.0.1-1 NVIDIA [amd64])\nConf {PACKAGE} (13.0)\n"
)
PLAN, APT = "apt-get -q -s", "env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600"


def host(ends: Mapping[str, Ended] = MappingProxyType({})) -> ServiceHost:
    """Return a host whose repositories have the toolkit."""
    known = {
        "apt-cache madison": Ended(0, f" {PACKAGE} | 13.0.1-1 | https://developer.download.nvidia.com\n"),
        "dpkg-query": Ended(1, ""),
        PLAN: Ended(0, PLANNED),
    }
    return ServiceHost({}, ends={**known, **ends})


def installs(each: ServiceHost) -> list[list[str]]:
    """Return the packages and options that apt was to install for real."""
    found = [words for words in each.done if "install" in words and "-s" not in words]
    return [words[words.index("install") + 1 :] for words in found]


def test_a_toolkit_is_installed_and_its_compiler_runs() -> None:
    each = host()
    document = parse_document(dump(GIVEN).encode())
    find_verb("cuda_toolkit.install").run(decode(InstallInput, document), each)
    assert installs(each) == [["--no-install-recommends", "--no-remove", PACKAGE]]
    planned, real = each.index("-s"), each.index("--no-remove")
    assert each.index("update") < planned < real < each.index(NVCC, "--version")


def test_one_whose_compiler_does_not_run_is_installed_again() -> None:
    each = host({"dpkg-query": Ended(0, "installed")})
    install(GIVEN, each)
    again = ["--reinstall", PACKAGE, "cuda-nvcc-13-0"]
    assert installs(each) == [["--no-install-recommends", "--no-remove", *again]]
    assert [words[-3:] for words in each.done if "-s" in words] == [again]


@pytest.mark.parametrize(
    ("names", "there"),
    [
        ("cuda-toolkit-12-9\ncuda-toolkit-config-common\ncuda-toolkit-13-10\ncuda-toolkit-13-2\n", "12.9 13.2 13.10"),
        ("", "none at all: is `gpus: repository:` right?"),
    ],
)
def test_a_toolkit_that_no_repository_has(names: str, there: str) -> None:
    each = host({"apt-cache madison": Ended(0), "apt-cache pkgnames": Ended(0, names)})
    with pytest.raises(FailedError) as caught:
        install(GIVEN, each)
    assert caught.value.message == f"none of this host's repositories has {PACKAGE}"
    assert caught.value.fix == f"write another `cuda:`; there is {there}"
    assert installs(each) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Remv gnome-shell [48-1]", "gnome-shell would go"),
        ("Inst libcuda1 (590.48.01-1 NVIDIA [amd64])", "libcuda1 would come"),
        ("Inst cuda-drivers (590.48.01-1 NVIDIA)\nRemv x [1]", "cuda-drivers would come; x would go"),
    ],
)
def test_what_brings_a_driver_or_takes_something_away_is_not_installed(line: str, problem: str) -> None:
    each = host({PLAN: Ended(0, f"{PLANNED}{line}\n")})
    with pytest.raises(FailedError) as caught:
        install(GIVEN, each)
    assert caught.value.message == f"{PACKAGE} was not installed: with it, {problem}"
    assert f"`apt-get -s install {PACKAGE}`" in caught.value.fix
    assert installs(each) == []


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ({PLAN: Ended(100, "a\n", "E: broken\n")}, f"apt cannot install {PACKAGE} here; its reasons are above"),
        (
            {
                "env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 update": Ended(
                    100, "E: x\n"
                )
            },
            f"apt could not read its lists anew. The whole log is {LOG} on the host.",
        ),
        (
            {
                "env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 install": Ended(
                    100, "E: x\n"
                )
            },
            f"apt could not install {PACKAGE}. The whole log is {LOG} on the host.",
        ),
        ({NVCC: Ended(127)}, f"{PACKAGE} is installed, and there is no {NVCC} that runs"),
    ],
    ids=["no plan", "no lists", "not installed", "no compiler"],
)
def test_why_it_could_not_be_installed(ends: dict[str, Any], message: str) -> None:
    each = host(ends)
    with pytest.raises(FailedError) as caught:
        install(GIVEN, each)
    assert caught.value.message == message
    assert caught.value.fix or caught.value.log


def test_killed_anywhere_the_next_run_installs_it() -> None:
    for each in [host(), *killed_everywhere(host, lambda each: install(GIVEN, each))]:
        install(GIVEN, each)
        assert installs(each)[-1][-1] == PACKAGE


@pytest.mark.parametrize("text", PLAIN)
def test_no_shell_reads_a_value(text: str) -> None:
    each = host()
    install(replace(GIVEN, version=text, package=text, compiler=text), each)
    assert installs(each)[0][-1] == text
    assert not [words for words in each.done if words[0] == "sh"]
