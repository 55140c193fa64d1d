"""Ask a server one prompt. Ends with 0, and says nothing; with 1, and says why it does not answer; or with 2, and says
what about the answer is not as declared."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

LARGEST = 1 << 20
"""Bytes of an answer."""


def main(path: str) -> tuple[int, str]:
    asked = json.loads(Path(path).read_text(encoding="utf-8"))
    request = urllib.request.Request(asked["url"], json.dumps(asked["body"]).encode())
    request.add_header("Content-Type", "application/json")
    if asked["key"]:
        request.add_header("Authorization", "Bearer " + Path(asked["key"]).read_text(encoding="utf-8").strip())
    # No proxy: this host is asked.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=asked["seconds"]) as answer:
            said = json.loads(answer.read(LARGEST))
        message = said["choices"][0]["message"]
        words = message.get("content") or message.get("reasoning_content")
        timings = said.get("timings", {})
        if words or said["usage"]["completion_tokens"]:
            return 2, unlike(asked, timings.get)
        return 1, "a prompt is answered with nothing"
    except urllib.error.HTTPError as error:
        return 1, f"a prompt is answered with HTTP {error.code}: {said_of(error.read(LARGEST))}"
    except OSError as error:
        return 1, f"a prompt is not answered: {getattr(error, 'reason', error)}"
    except (ValueError, LookupError, TypeError, AttributeError):
        return 1, "a prompt is answered with what is no chat completion"


def said_of(body: bytes) -> str:
    """The message in an error's body, or the body; on one line."""
    text = body.decode(errors="replace")
    with suppress(ValueError, LookupError, TypeError):
        text = str(json.loads(text)["error"]["message"])
    return " ".join(text.split())[:200]


def unlike(asked: Mapping[str, Any], timing: Callable[[str, Any], Any]) -> str:
    drafted, speed = timing("draft_n", 0), timing("predicted_per_second", 0)
    if asked["drafts"] and not drafted:
        return "no token was drafted, though drafting is declared"
    if asked["drafts"] and drafted >= asked["drafts"] and not timing("draft_n_accepted", 0):
        return f"none of {drafted} drafted tokens was accepted: what drafts does not fit the model"
    if speed < asked["floor"]:
        return f"it decodes {speed:.1f} tokens/s, and `expect` allows no less than {asked['floor']:g}"
    return ""


code, why = main(sys.argv[1])
sys.stdout.write(why)
sys.exit(code if why else 0)
