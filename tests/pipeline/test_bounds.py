"""What is too large, too deep or no file at all is refused with a finding: soon, and in little memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from llamaherd import lock
from llamaherd.cli.herd import main as cli
from llamaherd.diagnostics.findings import MOST_SHOWN, Finding, InventoryError, Place, Severity, to_print
from llamaherd.host.ssh import RemoteError, require_key
from llamaherd.inventory import yaml_file
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import Connect, Secret
from llamaherd.pipeline.fleet_files import examine_fleet
from llamaherd.recipes import understand
from llamaherd.text.textfile import UnreadableError, read_text
from tests.support.envelope import envelope
from tests.support.examples import EXAMPLES

MEMORY = 300 << 20
RIG = (EXAMPLES / "one.yaml").read_text(encoding="utf-8")


def aliases(of: Callable[[int], str], levels: int) -> str:
    return "\n".join([f"a0: &a0 {of(-1)}", *(f"a{n}: &a{n} {of(n - 1)}" for n in range(1, levels))])


def nine(n: int) -> str:
    return "[" + ", ".join([f"*a{n}" if n >= 0 else "lol"] * 9) + "]"


def mappings(n: int) -> str:
    return "{" + ", ".join(f"k{each}: {f'*a{n}' if n >= 0 else 'lol'}" for each in range(9)) + "}"


def merges(n: int) -> str:
    return "{<<: [" + ", ".join([f"*a{n}"] * 9) + "], " + f"x{n}: 1}}" if n >= 0 else "{a: 1}"


TEXTS: Mapping[str, str] = {
    "lists of aliases": aliases(nine, 10),
    "mappings of aliases": aliases(mappings, 9),
    "aliases that are merged": aliases(merges, 9),
    "a rig with them": f"{RIG}\ninstance_defaults: {{environment: &a0 {mappings(-1)}}}\n{aliases(mappings, 9)[10:]}",
    "instances with many defaults": "rig: a\ninstance_defaults:\n"
    + "".join(f"  k{n}: 1\n" for n in range(20_000))
    + "instances:\n"
    + "".join(f"  i{n}: {{}}\n" for n in range(20_000)),
    "brackets": "a: " + "[" * 200_000,
    "closed brackets": "a: " + "[" * 200_000 + "]" * 200_000,
    "braces": "{a: " * 200_000,
    "indentation": "\n".join(" " * n + f"a{n}:" for n in range(1200)),
    "dashes": "a: " + "- " * 300_000,
    "dashes in a line": "- " * 300_000 + "a",
    "many keys": "".join(f"k{n}: 1\n" for n in range(80_000)),
    "keys in a rig": RIG + "".join(f"k{n}: 1\n" for n in range(16_000)),
    "keys in an instance": RIG + "instances: {a: {" + ", ".join(f"k{n}: 1" for n in range(16_000)) + "}}",
    "one key many times": "rig: a\n" * 40_000,
    "ten megabytes of keys": "".join(f"k{n}: 1\n" for n in range(1_000_000)),
    "a long text": f"rig: {'x' * 900_000}",
    "a long number": f"rig: {'9' * 900_000}",
    "a long float": f"rig: 0.{'9' * 900_000}",
    "a long key": f"{'x' * 900_000}: a",
    "long lines": "# " + "x" * 1_000_000,
    "a quote that is not closed": 'rig: "' + "a\n" * 400_000,
    "many anchors": "".join(f"- &a{n} x\n" for n in range(60_000)),
    "tabs": "\t" * 900_000,
    "NULs": "\0" * 900_000,
    "comments": "# a\n" * 200_000,
    "documents": "---\na: 1\n" * 80_000,
    "a set": "rig: !!set x\n",
    "a map": "rig: !!map x\n",
    "a truth value": "rig: !!bool 16\n",
    "a number": 'rig: !!float ""\n',
    "a whole number": 'rig: !!int ""\n',
    "an object": "rig: !!python/object/apply:os.system [id]\n",
    "bytes": "rig: !!binary ====\n",
    "a time": "rig: !!timestamp 99\n",
    "pairs": "rig: !!pairs x\n",
    "a tag of its own": "rig: !mine x\n",
    "a tagged key": "!!set {rig}: x\n",
    "a merge of nothing": "<<: 1\nrig: a\n",
    "long names of GPUs": RIG.replace("on: [card]", f"on: [{', '.join([f'x{chr(32)}' * 4500 + 'y'] * 100)}]"),
}
SECONDS = 5
"""Of the processor, that one text may take."""


DRIVER = """
import json, sys, time
from pathlib import Path
from llamaherd.pipeline.fleet_files import examine_fleet
for file in map(Path, sys.argv[1:]):
    began = time.process_time()
    _, findings = examine_fleet(file)
    helped = all(each.help and each.message for each in findings)
    print(json.dumps([file.parent.name, len(findings), helped, time.process_time() - began]))
"""


def bounded() -> None:
    """All of them together may take so much, Python and its libraries included."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (100, 100))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, bool, float]]:
    """Return how many findings each text has, whether all have a help, and the seconds that it took."""
    folder = tmp_path_factory.mktemp("bounds")
    files = []
    for name, text in TEXTS.items():
        (folder / name).mkdir()
        files.append(folder / name / "x.yaml")
        files[-1].write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", DRIVER, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=bounded, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: (count, helped, took) for name, count, helped, took in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", TEXTS)
def test_it_is_refused_in_bounds(judged: dict[str, tuple[int, bool, float]], name: str) -> None:
    count, helped, took = judged[name]
    assert count >= 1
    assert helped
    assert took < SECONDS


RECIPES: Mapping[str, tuple[str, str]] = {
    "comments before a section": ("x.yaml", "# a\n" * 30_000 + "x"),
    "blank lines before a section": ("x.yaml", " \n\t\n" * 30_000 + "x"),
    "a time of many digits": ("x.service", f"[Service]\nExecStart=/a\nTimeoutStartSec={'1' * 4000}x\n"),
    "many values in quotes": ("x.md", "# A page\n\nOf some words in a row.\n\n" + "--a 'b' " * 3000 + "|\n"),
    "the name of a tool again and again": ("x.md", "docker " * 18_000),
    "many arguments": ("x.sh", "llama-server " + "-a 'b' " * 10_000),
    "blank lines": ("x.md", "\n" * 130_000),
    "blank lines and flags": ("x.txt", " \n" * 60_000 + "--a b\n"),
}
RECIPE_DRIVER = """
import json, sys
from pathlib import Path
from llamaherd.recipes import understand
for file in map(Path, sys.argv[1:]):
    print(json.dumps([file.parent.name, len(understand(file).findings)]))
"""


def test_no_recipe_takes_for_ever(tmp_path: Path) -> None:
    """Each of them once did: what is tried in many ways, or again from each place on."""
    files = []
    for name, (file, text) in RECIPES.items():
        (tmp_path / name).mkdir()
        files.append(tmp_path / name / file)
        files[-1].write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", RECIPE_DRIVER, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=bounded, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [json.loads(line)[0] for line in done.stdout.splitlines()] == list(RECIPES)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Whoever opens it to read waits for somebody who writes."""
    os.mkfifo(tmp_path / "pipe.yaml")
    return tmp_path / "pipe.yaml"


@pytest.mark.parametrize("path", ["pipe.yaml", "/dev/zero", "/dev/null", "folder.yaml"])
def test_what_is_no_file_is_said(tmp_path: Path, pipe: Path, path: str) -> None:
    (tmp_path / "folder.yaml").mkdir()
    named = pipe.with_name(path) if not path.startswith("/") else Path(path)
    with pytest.raises(UnreadableError, match=r"it is a (pipe|device|folder), and no file"):
        read_text(named, 100)
    with pytest.raises(InventoryError, match="LH001: cannot read this file: it is a"):
        yaml_file.read_yaml(named)
    if path != "folder.yaml":
        with pytest.raises(lock.LockError, match="cannot read this file: it is a"):
            lock.read_lock_file(named)
        assert "it is a" in understand(named).findings[0].message
        with pytest.raises(UnreadableKeyError, match="it is a"):
            read_key(Secret(file=named))
        with pytest.raises(RemoteError, match="cannot be read: it is a"):
            require_key(Connect(host="a", key=named))


def test_a_file_of_a_fleet_that_is_none_is_a_finding(tmp_path: Path, pipe: Path) -> None:
    assert pipe.exists()
    (tmp_path / "one.yaml").write_text(RIG)
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "defaults.yaml").symlink_to("/dev/zero")
    _, findings = examine_fleet(tmp_path)
    said = {finding.place.file.name: finding.message for finding in findings if finding.code == "LH001"}
    assert said["pipe.yaml"].endswith("it is a pipe, and no file")
    assert said["defaults.yaml"].endswith("it is a device, and no file")
    assert said["folder.yaml"].endswith("it is a folder, and no file")


def test_as_much_as_is_allowed_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("a\r\nb")
    assert read_text(file, 4) == "a\nb"
    with pytest.raises(UnreadableError, match="larger than 3 B"):
        read_text(file, 3)


def finding(number: int, severity: Severity) -> Finding:
    return Finding("LH010", Place(Path("a.yaml"), number), "m", "h", severity)


def test_of_many_findings_the_gravest_are_printed() -> None:
    many = [finding(n, "warning") for n in range(300)] + [finding(n, "error") for n in range(300, 350)]
    first = to_print(many)
    assert len(first) == MOST_SHOWN
    assert [each.severity for each in first] == ["warning"] * 150 + ["error"] * 50
    assert to_print(many[:MOST_SHOWN]) == tuple(many[:MOST_SHOWN])
    assert str(InventoryError(many)).endswith("and 150 more")


def test_the_rest_is_counted_for_people_and_machines(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(RIG + "".join(f"k{n}: 1\n" for n in range(300)))
    told = CliRunner().invoke(cli, ["check", str(file)])
    assert "and 1" in told.output
    assert told.output.count("error LH010") <= MOST_SHOWN
    machine = envelope(CliRunner().invoke(cli, ["check", "--json", str(file)]).stdout)
    assert len(machine["findings"]) == MOST_SHOWN
    assert machine["data"]["total"] >= 300


MANY_SERVERS: Mapping[str, str] = {
    "a.sh": "llama-server -m a.gguf -c 1\n" * 4000,
    "beside.sh": "llama-server -m a.gguf -c 1 &\n" * 4000,
    "a.md": "```bash\nllama-server -m a.gguf\n```\n" * 3000,
    "compose.yaml": "services:\n"
    + "".join(
        f'  a{n}: {{image: "ghcr.io/ggml-org/llama.cpp:server", command: -m a.gguf, ports: ["{n + 2000}:8080"]}}\n'
        for n in range(1100)
    ),
}


@pytest.mark.parametrize("name", MANY_SERVERS)
def test_of_very_many_servers_the_first_are_looked_at(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(MANY_SERVERS[name])
    recipe = understand(path)
    assert len(recipe.servers) == 200
    assert [finding.code for finding in recipe.findings if "not checked" in finding.message] == ["LH014"]


def test_of_very_many_overrides_the_first_are_compared(tmp_path: Path) -> None:
    """Each is tried on every tensor: all but the first find nothing that is left, and so many are said."""
    path = tmp_path / "a.sh"
    path.write_text("llama-server -m a.gguf " + " -ot a=CPU" * 3000)
    assert len([finding for finding in understand(path).findings if finding.code == "LH260"]) == 255
