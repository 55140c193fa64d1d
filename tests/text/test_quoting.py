"""Each quoting function against what reads its texts: what is read is what was meant."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import nodes

from llamaherd.render import UnquotedError, template_environment
from llamaherd.text import quoting
from llamaherd.text.quoting import harmful
from tests.support import systemd
from tests.support.hostile import CONTROL, EVERY, PLAIN

TEMPLATES = Path(__file__).parents[2] / "templates"
STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ONE_LINE = STORABLE.filter(lambda text: harmful(text) is None)
HANDED_OVER = [text for text in EVERY if "\0" not in text and not re.search("[\ud800-\udfff]", text)]
SEARCH = settings(max_examples=max(40, settings().max_examples // 2))


def in_shell(shell: str, quoted: list[str]) -> list[str]:
    """What a shell makes of these words."""
    script = f"{{\nprintf '%s\\0' end {' '.join(quoted)}\n}}\n"
    done = subprocess.run([shell], input=script.encode(), capture_output=True, check=True)
    return done.stdout.decode().split("\0")[1:-1]


@pytest.mark.parametrize("shell", ["dash", "bash"])
@SEARCH
@given(st.lists(STORABLE, max_size=6))
@example(HANDED_OVER)
def test_a_shell_reads_what_was_meant(shell: str, texts: list[str]) -> None:
    assert in_shell(shell, [quoting.sh(text) for text in texts]) == texts


@given(st.lists(STORABLE, max_size=6))
@example(HANDED_OVER)
def test_systemd_reads_the_arguments_that_were_meant(texts: list[str]) -> None:
    line = " ".join(quoting.systemd_argument(text) for text in texts)
    ((_, _, value),) = systemd.directives(f"[Service]\nExecStart=/bin/true {line}\n")
    assert systemd.arguments(value) == ["/bin/true", *texts]


@given(st.lists(STORABLE, max_size=6))
@example(HANDED_OVER)
def test_systemd_reads_the_variables_that_were_meant(texts: list[str]) -> None:
    lines = "".join(f"Environment={quoting.systemd_value(f'A={text}')}\n" for text in texts)
    read = [systemd.assignments(value) for _, _, value in systemd.directives(f"[Service]\n{lines}")]
    assert read == [[f"A={text}"] for text in texts]


def interpolated(text: str) -> str:
    """A value as Compose interpolates it: `$$` is a dollar, and nothing else with one may stand there."""
    assert "$" not in text.replace("$$", "")
    return text.replace("$$", "$")


@given(st.dictionaries(STORABLE, STORABLE, max_size=4))
@example(
    dict.fromkeys(HANDED_OVER, "a") | dict(enumerate_texts := [(str(n), text) for n, text in enumerate(HANDED_OVER)])
)
def test_compose_reads_what_was_meant(texts: dict[str, str]) -> None:
    for value in texts.values():
        assert interpolated(yaml.safe_load(f"a: {quoting.compose(value)}\n")["a"]) == value
        assert yaml.safe_load(f"- {{a: {quoting.yaml_value(value)}}}\n") == [{"a": value}]
    assert json.loads(interpolated(quoting.compose(texts))) == texts


def powershell_reads(text: str) -> str:
    """A text in single quotes as PowerShell's tokenizer does (ScanStringLiteral): any of its five quotes ends it."""
    quotes = "'\u2018\u2019\u201a\u201b"
    assert text[0] in quotes
    read, at = "", 1
    while text[at] not in quotes or (at + 1 < len(text) and text[at + 1] in quotes):
        at += text[at] in quotes
        read += text[at]
        at += 1
    assert at == len(text) - 1, "it ended early"
    return read


@given(ONE_LINE)
@example("'; touch /tmp/PWNED; '")
@example("\u2019; touch /tmp/PWNED; \u2018")
@example("'\u2019\u201b")
def test_powershell_reads_what_was_meant(text: str) -> None:
    assert powershell_reads(quoting.powershell(text)) == text


needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="the OpenSSH client is not installed")


@needs_ssh
@pytest.mark.parametrize(
    "path", ["/a b/key", "/a%h/key", "/a'b", "/a#b", "/a;b", "/a=b", "/a$HOME", "/日本/🦙", "/a, b"]
)
def test_ssh_reads_the_path_that_was_meant(path: str) -> None:
    option = f"IdentityFile={quoting.ssh_option(path)}"
    done = subprocess.run(["ssh", "-G", "-F", "none", "-o", option, "host"], capture_output=True, text=True, check=True)
    (read,) = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("identityfile ")]
    assert read.replace("%%", "%") == path


def test_a_comment_stays_one_line() -> None:
    for text in EVERY:
        read = quoting.comment(text)
        assert len(read.splitlines()) <= 1
        assert yaml.safe_load(f"a: 1 # {read}\nb: 2\n") == {"a": 1, "b": 2}


def test_a_here_document_ends_where_it_should() -> None:
    assert quoting.here_document("a\n END\nENDE") == "a\n END\nENDE"
    with pytest.raises(ValueError, match="END"):
        quoting.here_document("a\nEND\ntouch /tmp/PWNED")


@pytest.mark.parametrize(
    "function",
    [quoting.sh, quoting.systemd_argument, quoting.systemd_value, quoting.powershell, quoting.ssh_option],
)
def test_what_no_program_can_be_handed_is_refused(function: Callable[[str], str]) -> None:
    for text in ("a\0b", "\ud800"):
        with pytest.raises(ValueError, match="cannot be handed"):
            function(text)


def test_what_a_template_forgot_to_quote_is_an_error() -> None:
    template = template_environment().from_string("{{ value }}")
    for text in (*CONTROL, *PLAIN):
        if quoting.is_word(text):
            assert in_shell("dash", [f"x{text}"]) == [f"x{text}"]
            continue
        with pytest.raises(UnquotedError):
            template.render(value=text)
        with pytest.raises(UnquotedError):
            template_environment().from_string("{{ values | join(' ') }}").render(values=["a", text])
    assert template.render(value=quoting.sh("a b")) == "'a b'"
    with pytest.raises(UnquotedError):
        template.render(value=True)


READERS = {
    ".sh": {"quote", "here_document"},
    ".service": {"unit_quote", "unit_value"},
    ".conf": {"unit_quote", "unit_value", "url_host"},
    ".yaml": {"compose", "yaml", "comment"},
    ".yml": {"yaml", "url_host"},
    ".ps1": {"powershell"},
    ".cfg": {"haproxy", "haproxy_format", "url_host"},
}
QUOTING = set().union(*READERS.values())


def filters(node: nodes.Node) -> set[str]:
    """The quoting functions that an expression of a template uses; `map` has one as its argument."""
    used = {each.name for each in node.find_all(nodes.Filter)} | (
        {node.name} if isinstance(node, nodes.Filter) else set()
    )
    mapped = {arg.as_const() for each in node.find_all(nodes.Filter) if each.name == "map" for arg in each.args}
    return (used | mapped) & QUOTING


def printed(template: Path) -> list[nodes.Node]:
    tree = template_environment().parse(template.read_text(encoding="utf-8"))
    return [each for output in tree.find_all(nodes.Output) for each in output.nodes]


@pytest.mark.parametrize("template", sorted(TEMPLATES.rglob("*.j2")), ids=lambda path: path.name)
def test_a_template_quotes_for_its_own_reader(template: Path) -> None:
    readers = READERS.get(template.with_suffix("").suffix, set())
    for node in printed(template):
        assert filters(node) <= readers, node


def test_no_template_calls_a_text_safe() -> None:
    """`safe`, `string` and the like would hand on what no quoting function has seen; `tojson` knows no Compose."""
    allowed = QUOTING | {
        "join",
        "map",
        "list",
        "length",
        "select",
        "selectattr",
        "rejectattr",
        "replace",
        "string",
        "default",
    }
    used = {
        each.name
        for template in TEMPLATES.rglob("*.j2")
        for each in template_environment().parse(template.read_text(encoding="utf-8")).find_all(nodes.Filter)
    }
    assert used <= allowed
