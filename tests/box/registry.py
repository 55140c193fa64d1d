"""An image registry on the box: a few lines of Python that Docker fetches from as from any other."""

from __future__ import annotations

from tests.box.bench import Bench

FOLDER = "/run/registry"
HOST = "127.0.0.1:5000"

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


def put(bench: Bench, path: str, text: str) -> None:
    """A program on the box, with the folders that it lies in."""
    bench.sh(f"mkdir -p {path.rpartition('/')[0]} && cat >{path} <<'END'\n{text}END\nchmod 0755 {path}")


def prepare(bench: Bench) -> None:
    """Its folder, and the two programs in it; it does not answer yet."""
    put(bench, f"{FOLDER}/publish.py", PUBLISH)
    put(bench, f"{FOLDER}/serve.py", SERVE)


def start(bench: Bench) -> None:
    """It answers from now on."""
    bench.sh(f"systemd-run -q --unit=registry python3 {FOLDER}/serve.py")


def stop(bench: Bench) -> None:
    """It does not any more."""
    bench.sh("systemctl stop registry", check=False)


def publish(bench: Bench, image: str, name: str) -> str:
    """Move an image from the box's Docker into the registry; returns how it is fetched from there, by its digest."""
    bench.sh(f"docker save {image} >{FOLDER}/saved.tar && docker image rm {image} >/dev/null")
    digest = bench.sh(f"python3 {FOLDER}/publish.py; rm {FOLDER}/saved.tar")
    return f"{HOST}/{name}@{digest}"


def remove(bench: Bench) -> None:
    """Nothing of it stays, nor what nobody runs of its images."""
    stop(bench)
    bench.sh(f"docker image prune -af; rm -rf {FOLDER}")
