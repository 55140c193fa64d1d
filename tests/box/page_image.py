"""The one thing that is faked of a chat page: its image. No registry with Open WebUI's can be reached from here.

It is made on the box of the box's own Python and of Debian's uvicorn, and has what Open WebUI's has where the page's
command line looks for it: `open_webui.main:app` below /app/backend, which uvicorn serves. The program there reads the
variables that Open WebUI reads, says that it is well at /health, and asks the gateway as that does. It has no page.
"""

from __future__ import annotations

from textwrap import dedent

from tests.box import registry
from tests.box.bench import Bench

ROOT = f"{registry.FOLDER}/page"

APP = """
import asyncio, hashlib, json, os, pathlib, ssl, urllib.request

VERSION = "{version}"
TOLD = {{name: os.environ[name] for name in ("OPENAI_API_KEYS", "WEBUI_SECRET_KEY", "OPENAI_API_BASE_URLS")}}
KEPT = pathlib.Path(os.environ["DATA_DIR"], "conversations")
{beginning}

def ask(words):
    trusted = ssl.create_default_context(cafile=os.environ["AIOHTTP_CLIENT_SSL_CERT_FILE"])
    message = {{"role": "user", "content": words}}
    body = {{"model": os.environ["DEFAULT_MODELS"], "max_tokens": 8, "messages": [message]}}
    headers = {{"Authorization": "Bearer " + TOLD["OPENAI_API_KEYS"], "Content-Type": "application/json"}}
    url = TOLD["OPENAI_API_BASE_URLS"] + "/chat/completions"
    asking = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asking, context=trusted, timeout=60) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
    with KEPT.open("a") as file:
        file.write(words + "\\n")
    return {{"said": said, "kept": KEPT.read_text().splitlines()}}

def look():
    signs = hashlib.sha256(TOLD["WEBUI_SECRET_KEY"].encode()).hexdigest()
    return {{"version": VERSION, "signs": signs}}

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    try:
        match scope["path"].split("/")[1:]:
            case ["health"]:
                body = {{"status": True}}
            case ["ask", words]:
                body = await asyncio.to_thread(ask, words)
            case _:
                body = look()
        status = 200
    except OSError as error:
        status, body = 502, {{"error": str(error)}}
    await send({{"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}})
    await send({{"type": "http.response.body", "body": json.dumps(body).encode()}})
"""

MAKE = f"""
mkdir -p {ROOT}/debs {ROOT}/root/usr/bin && cd {ROOT}/debs
apt-get update -qq && apt-get download -qq -o APT::Sandbox::User=root python3-uvicorn python3-click python3-h11
for package in *.deb; do dpkg -x "$package" {ROOT}/root; done
python=$(readlink -f /usr/bin/python3) && library=/usr/lib/${{python##*/}}
cp -r --parents "$library" {ROOT}/root && cp "$python" {ROOT}/root/usr/bin/python3
cp -L --parents /bin/sh /bin/cat {ROOT}/root
ldd "$python" /bin/sh /bin/cat "$library"/lib-dynload/*.so 2>/dev/null | grep -o '/[^ :]*[.]so[.0-9]*' |
    grep -v lib-dynload | sort -u | xargs cp -L --parents -t {ROOT}/root
mkdir -p {ROOT}/root/tmp {ROOT}/root/data {ROOT}/root/run
"""
"""Python with what it is linked to, a shell, and what Debian packages of uvicorn; of all that nothing is installed."""


def prepare(bench: Bench) -> None:
    """A folder with all that any version of it has; and the registry answers."""
    registry.prepare(bench)
    bench.sh(f"set -e\n{MAKE}")
    registry.start(bench)


def publish(bench: Bench, version: str, beginning: str = "") -> str:
    """Make a version of it, which does this first; returns how it is fetched."""
    program = APP.format(version=version, beginning=dedent(beginning))
    registry.put(bench, f"{ROOT}/root/app/backend/open_webui/main.py", program)
    bench.sh(f"chmod -R go=u-w {ROOT}/root; tar -C {ROOT}/root -c . | docker import - page")
    return registry.publish(bench, "page", "open-webui")
