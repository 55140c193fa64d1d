"""A container of an image that is fetched: what can be asked before the old one stops, is asked before.

The registry is a few lines of Python on the host: Docker fetches from it as from any other.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.box.bench import Bench, Declared

pytestmark = pytest.mark.box

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

MAKE = """
engine=$(docker inspect -f '{{.Config.Image}}' llama-drafter)
DOCKER_BUILDKIT=0 docker build -q --build-arg ENGINE=$engine -t published . >/dev/null
docker save published >saved.tar
docker image rm published >/dev/null
systemd-run -q --unit=registry python3 /run/registry/serve.py
python3 publish.py
"""

PUBLISH = """
import gzip, hashlib, json, pathlib, sys, tarfile
blobs = pathlib.Path("/run/registry/blobs"); blobs.mkdir(parents=True, exist_ok=True)
def blob(data, kind):
    name = "sha256:" + hashlib.sha256(data).hexdigest()
    (blobs / name).write_bytes(data)
    return {"mediaType": "application/vnd.docker." + kind, "size": len(data), "digest": name}
saved = tarfile.open("/run/registry/saved.tar")
of = json.load(saved.extractfile("manifest.json"))[0]
config = blob(saved.extractfile(of["Config"]).read(), "container.image.v1+json")
layers = [blob(gzip.compress(saved.extractfile(each).read(), 1), "image.rootfs.diff.tar.gzip") for each in of["Layers"]]
manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json"}
print(blob(json.dumps(manifest | {"config": config, "layers": layers}).encode(), "manifest")["digest"])
"""

SERVE = """
import http.server, pathlib
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self, body=True):
        found = pathlib.Path("/run/registry/blobs", self.path.rsplit("/", 1)[-1])
        there = self.path == "/v2/" or found.is_file()
        data = found.read_bytes() if found.is_file() else b"{}"
        self.send_response(200 if there else 404)
        kind = "vnd.docker.distribution.manifest.v2+json" if "/manifests/" in self.path else "json"
        self.send_header("Content-Type", "application/" + kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", found.name)
        self.end_headers()
        if body:
            self.wfile.write(data)
    def do_HEAD(self):
        self.do_GET(False)
http.server.ThreadingHTTPServer(("127.0.0.1", 5000), Handler).serve_forever()
"""


@pytest.fixture
def image(bench: Bench) -> Iterator[str]:
    """The box's own engine, as others publish theirs."""
    files = {"curl": CURL, "publish.py": PUBLISH, "serve.py": SERVE, "Dockerfile": DOCKERFILE, "make": MAKE}
    bench.sh("mkdir -p /run/registry")
    for name, text in files.items():
        bench.sh(f"cat >/run/registry/{name} <<'END'\n{text}END\nchmod 0755 /run/registry/{name}")
    digest = bench.sh("cd /run/registry && sh -e ./make")
    yield f"127.0.0.1:5000/engine@{digest}"
    bench.sh("systemctl stop registry", check=False)
    bench.restore()
    bench.sh("docker image prune -af; rm -rf /run/registry")


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
    bench.sh("systemctl stop registry")
    declare(bench, image)
    left_alone(bench, "its image cannot be fetched")
    bench.sh("systemd-run -q --unit=registry python3 /run/registry/serve.py")
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
    bench.sh("systemctl stop registry")
    declare(bench, image, "--threads-batch", "1")
    ended = bench.up("--yes")
    assert ended.code == 0, ended.output
    assert "fetching" not in ended.output
