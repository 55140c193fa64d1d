"""scripts/box: from nothing to an answered prompt, and back to nothing."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from box import downloads, tiny_moe
from box.errors import BoxError
from box.host import BoxHost
from box.report import report

ROOT = Path(__file__).resolve().parents[1]
BOX = ROOT / ".box"
CACHE = BOX / "cache"
API_KEY = BOX / "api-key"
TINY_MOE = CACHE / "tiny-moe.gguf"
INVENTORY = "inventory/box.yaml"
RIG = "box"


class PartFailedError(BoxError):
    """A program that we ran ended with an exit code, which becomes ours."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--down", "remove", is_flag=True, help="Remove the box; caches and keys stay.")
@click.option("--caches", is_flag=True, help="With --down: remove caches, downloads, images and keys too.")
def main(remove: bool, caches: bool) -> None:
    """Make the rig in a box, deploy to it, and ask its models something."""
    if caches and not remove:
        raise click.UsageError("--caches goes with --down")
    try:
        if remove:
            down(caches=caches)
        else:
            up()
    except PartFailedError as failure:
        click.echo(f"box: {failure}", err=True)
        sys.exit(failure.code)
    except BoxError as failure:
        click.echo(f"box: {failure}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("box: interrupted; `scripts/box` goes on from here", err=True)
        sys.exit(130)


def host() -> BoxHost:
    """The box's host."""
    return BoxHost(name="llamaherd-box", port=2201, folder=BOX / "llamaherd-box")


def up() -> None:
    """Make or converge the box, verify it and report."""
    seconds: dict[str, float] = {}
    with timed("all", seconds):
        prepare(seconds)
        with timed("converge", seconds):
            converge()
        with timed("verify", seconds):
            code, found = verify()
    report(found, seconds)
    if code != 0:
        raise PartFailedError("verification failed; the failed checks are above", code)


def down(*, caches: bool) -> None:
    """Remove the box, and what would make the next one fast if that is wished."""
    host().down(caches=caches, report=log)
    if caches:
        shutil.rmtree(CACHE, ignore_errors=True)
        API_KEY.unlink(missing_ok=True)
    log("gone" if caches else "gone; caches and keys stay (--down --caches removes them too)")


def prepare(seconds: dict[str, float]) -> None:
    """Make the host, and fetch meanwhile what will be deployed to it."""
    make_api_key()

    def job(part: str, work: Callable[[], object]) -> None:
        with timed(part, seconds):
            work()

    def fetch() -> None:
        for artifact in (downloads.LLAMA_CPP, downloads.GEMMA):
            downloads.fetch(artifact, CACHE, log)
        tiny_moe.write(TINY_MOE)

    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(job, "host", lambda: host().up(log)),
            pool.submit(job, "downloads (meanwhile)", fetch),
        ]
    for finished in jobs:
        finished.result()


def make_api_key() -> None:
    """The key that the box's servers ask for, made once."""
    if API_KEY.exists():
        return
    API_KEY.parent.mkdir(parents=True, exist_ok=True)
    unfinished = API_KEY.with_name(f"{API_KEY.name}.{os.getpid()}")
    # The mode comes with the file: nobody can read it in between.
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")
    unfinished.replace(API_KEY)


def converge() -> None:
    """Run the deployment, exactly as a user would."""
    argv = ["pyinfra", "inventory.py", "deploy.py", "-y"]
    log(f"{' '.join(argv)}   (HERD_INVENTORY={INVENTORY})")
    code = subprocess.run([_program(argv[0]), *argv[1:]], cwd=ROOT, env=_environment(), check=False).returncode
    if code != 0:
        raise PartFailedError(f"the deployment failed (pyinfra ended with {code}); the reason is above", code)


def verify() -> tuple[int, dict[str, Any]]:
    """What `herd verify` says of the box, with its exit code."""
    log(f"herd verify {RIG}")
    argv = [_program("herd"), "verify", RIG, "--json"]
    ended = subprocess.run(argv, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True, check=False)
    try:
        (found,) = json.loads(ended.stdout)["rigs"]
    except ValueError:
        click.echo(ended.stdout, err=True)
        code = ended.returncode or 1
        raise PartFailedError(f"herd verify {RIG} ended with {ended.returncode} and no report", code) from None
    return ended.returncode, found


@contextmanager
def timed(part: str, seconds: dict[str, float]) -> Iterator[None]:
    """Note how long a part took."""
    began = time.monotonic()
    yield
    seconds[part] = time.monotonic() - began


def log(sentence: str) -> None:
    """One line, at once: programs that we run print to the same place."""
    click.echo(f"box: {sentence}")
    sys.stdout.flush()


def _program(name: str) -> str:
    """A program of the environment that this Python belongs to."""
    return str(Path(sys.executable).parent / name)


def _environment() -> dict[str, str]:
    """The environment for programs that we run."""
    environment = {**os.environ, "HERD_INVENTORY": INVENTORY}
    if not sys.stdout.isatty():
        environment["PYINFRA_PROGRESS"] = "off"  # its progress bar fills a log file with escape codes
    return environment
