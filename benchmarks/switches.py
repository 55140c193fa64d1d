"""Changes of a server, bad ones above all: what becomes of each, and how long nobody was answered.

    .venv/bin/python -m benchmarks.switches [--beside] [--stream] [CASE...]

The box that scripts/box makes must be there, and is given nftables. With --beside, what is new is tried beside what
serves; else something holds the port that it would have, and the old server stops first. A client on it asks the server
ten times a second for its health; with --stream, another has it write all the time. Printed are, for each case, how
`herd up` ended, the longest time between two answers, what became of what was written, and the sentence that it ended
with.
After each bad change the server must answer a prompt as before, and at the end the box is as declared.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from benchmarks.switches_clients import answered, asking, beside, streamed, streaming
from box.cli import API_KEY, CACHE, ROOT, TINY_MOE, host
from box.compiling import OPTIONS
from box.host import BoxHost

HERD = Path(sys.executable).parent / "herd"
Rig = dict[str, Any]
PORTS = {"chat": 8080, "drafter": 8081}
TOKENS = {"chat": 40, "drafter": 1500}
"""Of a stream: some two seconds on two cores, one for the other."""
UNIT = "/etc/systemd/system/llama-chat.service"
FAILS_AT_PROMPTS = (
    "{% for m in messages %}{% if 'colours' in m.content %}{{ raise_exception('no') }}{% endif %}{{ m.content }}"
    "{% endfor %}"
)
CAUGHT = """
old=$(systemctl show -P MainPID llama-chat)
until new=$(systemctl show -P MainPID llama-chat); [ "$new" != "$old" ] && [ "$new" != 0 ] &&
    grep -q bin/llama "/proc/$new/cmdline" 2>/dev/null; do sleep 0.02; done
kill -{signal} "$new"
"""

NFT = {
    True: "install() { apt-get install -qq -y --no-install-recommends nftables; }; "
    "{ install || { apt-get update -qq && install; }; } >/dev/null 2>&1; test -x /usr/sbin/nft",
    False: "apt-get purge -qq -y nftables >/dev/null 2>&1; test ! -x /usr/sbin/nft",
}
HOLD = "systemd-run -q --unit=holder python3 -m http.server --bind 127.0.0.1 8085; sleep 1"
UNTAGGED = "docker images --format '{{.Repository}}:{{.Tag}}' llamaherd/engine | xargs docker rmi -f"
KILLED_IN_DOCKER = """
is() { docker inspect -f '{{if .State.Running}}{{.Id}}{{end}}' llama-drafter 2>/dev/null; }
old=$(is)
until new=$(is); [ "$new" ] && [ "$new" != "$old" ]; do sleep 0.02; done
docker kill llama-drafter
"""


@dataclass(frozen=True)
class Case:
    """A change of one server: of its rig, and what is done to the host before, meanwhile and afterwards."""

    change: Callable[[Rig], None]
    server: str = "chat"
    before: str = "true"
    meanwhile: str = ""
    after: str = "true"
    good: bool = False


def chat(**keys: object) -> Callable[[Rig], None]:
    """`chat` with other keys."""
    return lambda rig: rig["instances"]["chat"].update(keys)


def words(server: str, *more: str) -> Callable[[Rig], None]:
    """A server with more arguments."""

    def change(rig: Rig) -> None:
        given = rig["instances"][server]["extra_args"]
        rig["instances"][server]["extra_args"] = [*(given.split() if isinstance(given, str) else given), *more]

    return change


def template(server: str, text: str) -> Callable[[Rig], None]:
    """A server with another chat template."""
    return lambda rig: rig["instances"][server].update(extra_args=["--cache-ram", "256", "--chat-template", text])


def drafter(**keys: object) -> Callable[[Rig], None]:
    """`drafter` with other keys."""
    return lambda rig: rig["instances"]["drafter"].update(keys)


def cut_short(rig: Rig) -> None:
    """A model without its end, declared as what it is."""
    model = rig["models"]["gemma-3-270m"]
    content = Path(model["file"]).read_bytes()[: 100 << 20]
    file = Path(tempfile.gettempdir()) / "llamaherd-cut-short.gguf"
    file.write_bytes(content)
    model.update(file=str(file), sha256=hashlib.sha256(content).hexdigest())


def other_bytes(rig: Rig) -> None:
    rig["models"]["gemma-3-270m"]["sha256"] = "0" * 64


CASES = {
    "a good change": Case(chat(context=4096), good=True),
    "a good change of a container": Case(drafter(context=2048), "drafter", good=True),
    "a good change, the image gone": Case(drafter(context=2048), "drafter", before=UNTAGGED, good=True),
    "an unknown flag": Case(words("chat", "--no-such-flag")),
    "an argument that the engine refuses": Case(words("chat", "--override-kv", "nonsense")),
    "more context than there is memory": Case(chat(context=4_000_000)),
    "a model with another hash": Case(other_bytes),
    "a key that is gone": Case(chat(api_key={"file": "/nowhere/key"})),
    "a port that another program holds": Case(
        chat(port=8085),
        before=HOLD,
        after="systemctl stop holder",
    ),
    "a unit that cannot be written": Case(
        chat(context=4096),
        before=f"mount --bind {UNIT} {UNIT} && mount -o remount,ro,bind {UNIT}",
        after=f"umount {UNIT}",
    ),
    "a disk that is full": Case(
        chat(context=4096),
        before="mount -t tmpfs -o size=8k none /var/lib/llamaherd/kept",
        after="umount /var/lib/llamaherd/kept",
    ),
    "an address that is not the host's": Case(chat(listen="10.99.99.99")),
    "a LoRA that is not there": Case(words("chat", "--lora", "/nowhere.gguf")),
    "a template file that is not there": Case(
        chat(extra_args=["--cache-ram", "256", "--jinja", "--chat-template-file", "/nowhere.jinja"])
    ),
    "a model that is cut short": Case(cut_short),
    "a model that does not load": Case(words("chat", "--override-kv", "gemma3.block_count=int:99")),
    "a chat template that is none": Case(template("chat", "{{ raise_exception('no') }}")),
    "a chat template that fails at prompts": Case(template("chat", FAILS_AT_PROMPTS)),
    "killed while it loads, as for want of memory": Case(chat(context=4096), meanwhile=CAUGHT.format(signal="KILL")),
    "stands still while it loads (load_timeout: 15)": Case(
        chat(context=4096, load_timeout=15), meanwhile=CAUGHT.format(signal="STOP")
    ),
    "slower than expected": Case(chat(context=4096, expect={"decode": 100_000})),
    "a container with an unknown flag": Case(words("drafter", "--no-such-flag"), "drafter"),
    "a container with a key that is gone": Case(drafter(api_key={"file": "/nowhere/key"}), "drafter"),
    "a container on a port that is held": Case(
        drafter(port=8085), "drafter", before=HOLD, after="systemctl stop holder"
    ),
    "a container slower than expected": Case(drafter(context=2048, expect={"decode": 1_000_000}), "drafter"),
    "a container that is killed while it loads": Case(drafter(context=2048), "drafter", meanwhile=KILLED_IN_DOCKER),
    "a container whose model does not load": Case(
        words("drafter", "--override-kv", "tokenizer.ggml.model=str:none"), "drafter"
    ),
    "a container that fails at prompts": Case(template("drafter", FAILS_AT_PROMPTS), "drafter"),
}


def main() -> None:
    """Try all cases, or those that are named by a part of their name."""
    parts = [word for word in sys.argv[1:] if not word.startswith("--")]
    both, streams = "--beside" in sys.argv[1:], "--stream" in sys.argv[1:]
    chosen = [name for name in CASES if not parts or any(part in name for part in parts)]
    host().exec("sh", "-c", NFT[True])
    with nullcontext() if both else held(host()), tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "box.yaml"
        declare(inventory)
        assert up(inventory)[0] == 0, "the box is not as declared, and cannot be made so"
        print(f"{'case':48} {'ends with':>9} {'away, s':>8}  {'streams' if streams else ''}")
        for name in chosen:
            code, away, became, said = tried(inventory, CASES[name], both=both, streams=streams)
            print(f"{name:48} {code:9} {away:8.1f}  {became}{said[:200]}", flush=True)
            declare(inventory)
            assert up(inventory)[0] == 0, f"after {name}, the box does not become as declared"


@contextmanager
def held(box: BoxHost) -> Iterator[None]:
    """Nothing finds room beside what serves meanwhile: something of the box listens where it would."""
    ports = [61_000 + zlib.crc32(name.encode()) % 4_000 for name in PORTS]
    try:
        for port in ports:
            serve = ("python3", "-m", "http.server", str(port), "--bind", "127.0.0.1")
            box.exec("systemd-run", "-q", f"--unit=held-{port}", *serve)
        yield
    finally:
        box.exec("systemctl", "stop", *(f"held-{port}" for port in ports), check=False)


def tried(inventory: Path, case: Case, *, both: bool, streams: bool) -> tuple[int, float, str, str]:
    """How the run ended, the longest time without an answer in seconds, what became of streams, and a sentence."""
    box = host()
    box.exec("sh", "-c", case.before)
    declare(inventory, case.change)
    meanwhile = case.meanwhile.replace("llama-", "llamaherd-beside-") if both else case.meanwhile
    port = PORTS[case.server]
    writing = streaming(box, case.server, port, TOKENS[case.server]) if streams else nullcontext()
    try:
        with asking(box, port), writing, beside(box, meanwhile):
            time.sleep(1)
            code, said = up(inventory)
            time.sleep(2)
        times = answered(box)
        became = f"{streamed(box, times)}  " if streams else ""
    finally:
        box.exec("sh", "-c", case.after)
    assert (code == 0) == case.good, said
    assert time.time() - times[-1] < 5, f"nobody answers any more: {said}"
    away = max(after - before for before, after in pairwise(times)) - 0.1
    return code, away, became, "" if case.good else why(said)


def why(said: str) -> str:
    """The sentence that a run ended with."""
    about = ("-->", "some hosts", "help:", "explained by:", "[box] Error")
    return [line for line in map(str.strip, said.splitlines()) if line and not line.startswith(about)][-1]


def declare(inventory: Path, change: Callable[[Rig], None] = lambda _: None) -> None:
    """The box's rig, changed."""
    rig = rig_of(host())
    change(rig)
    inventory.write_text(yaml.safe_dump(rig, sort_keys=False))


def rig_of(box: BoxHost) -> Rig:
    """The box's rig, for a host like it."""
    rig: Rig = yaml.safe_load((ROOT / "inventory" / "box.yaml").read_text())
    rig["connect"] |= {"port": box.port, "key": str(box.key), "known_hosts": str(box.known_hosts)}
    source = rig["engines"]["main"]["source"]
    source["archive"] = str(CACHE / Path(source["archive"]).name)
    rig["engines"]["main"]["options"] = {**OPTIONS}
    gemma = rig["models"]["gemma-3-270m"]
    gemma["file"] = str(CACHE / Path(gemma["file"]).name)
    rig["models"]["tiny-moe"]["file"] = str(TINY_MOE)
    rig["instances"]["chat"]["api_key"] = {"file": str(API_KEY)}
    return rig


def up(inventory: Path) -> tuple[int, str]:
    """A run: its exit code, and what it said."""
    ended = subprocess.run(
        [HERD, "-i", inventory, "up", "-v", "--yes", "--retry"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


if __name__ == "__main__":
    main()
