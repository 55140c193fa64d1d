"""A container of an image that is fetched: what can be asked before the old one stops, is asked before.

The registry is a few lines of Python on the host: Docker fetches from it as from any other.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.box import registry
from tests.box.bench import Bench, Declared

CONTEXT = f"{registry.FOLDER}/context"

CURL = """#!/usr/bin/busybox sh
for url; do :; done
exec /usr/bin/busybox wget -q -O /dev/null "$url"
"""
"""Published images have curl, which asks for health; the base of ours has not."""

DOCKERFILE = """ARG ENGINE
FROM ${ENGINE}
COPY curl /usr/bin/curl
ENTRYPOINT ["/usr/local/bin/llama-server"]
"""


@pytest.fixture
def image(bench: Bench) -> Iterator[str]:
    """The box's own engine, as others publish theirs."""
    registry.prepare(bench)
    for name, text in {"curl": CURL, "Dockerfile": DOCKERFILE}.items():
        registry.put(bench, f"{CONTEXT}/{name}", text)
    engine = bench.sh("docker inspect -f '{{.Config.Image}}' llama-drafter")
    bench.sh(f"cd {CONTEXT} && DOCKER_BUILDKIT=0 docker build -q --build-arg ENGINE={engine} -t published .")
    registry.start(bench)
    yield registry.publish(bench, "published", "engine")
    registry.stop(bench)
    bench.restore()
    registry.remove(bench)


def declare(bench: Bench, image: str, *arguments: str) -> Declared:
    rig = bench.rig()
    rig["engines"]["ready"] = {"kind": "llama.cpp", "image": image}
    rig["instances"]["drafter"]["engine"] = "ready"
    rig["instances"]["drafter"]["extra_args"] = ["--cache-ram", "256", *arguments]
    bench.declare(rig)
    return rig


def left_alone(bench: Bench, why: str) -> None:
    """The run fails for this, and no server has been stopped."""
    before = bench.running()
    ended = bench.up("--yes")
    assert ended.code == 1, ended.output
    assert why in ended.output
    assert "the instance was left as it was" in ended.output
    assert "starting llama-drafter in its container" not in ended.output
    bench.unchanged(before)
    assert bench.sh("docker ps -aq --filter name=llamaherd-trial; ls -d /tmp/tmp.*", check=False) == ""


def test_a_container_is_asked_about_before_the_old_one_stops(bench: Bench, image: str) -> None:
    registry.stop(bench)
    declare(bench, image)
    left_alone(bench, "its image cannot be fetched")
    registry.start(bench)
    declare(bench, image, "--chat-template-file", "/nowhere.jinja")
    left_alone(bench, f"{image} does not accept its arguments")
    before = bench.running()
    declare(bench, image)
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    bench.unchanged(before, "drafter")
    assert bench.answers("drafter")
    assert bench.sh("docker inspect -f '{{.Config.Image}}' llama-drafter") == image
    again = bench.up("--yes")
    assert (again.code, again.changes) == (0, 0), again.output
    # And it is there by now: nothing is fetched any more.
    registry.stop(bench)
    declare(bench, image, "--threads-batch", "1")
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert "fetching" not in ended.output
