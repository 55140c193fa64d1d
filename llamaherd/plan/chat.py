"""A page that people chat on, as it must be on the gateway's host: never a key, only where keys are."""

from __future__ import annotations

from pathlib import Path

from llamaherd.inventory.schema import Secret
from llamaherd.plan.base import Planned, TextFile

PAGE_ASKS: dict[str, str] = {
    "BYPASS_MODEL_ACCESS_CONTROL": "true",
    "DEFAULT_MODEL_METADATA": '{"capabilities": {"builtin_tools": false}}',
    "ENABLE_FOLLOW_UP_GENERATION": "false",
    "ENABLE_TAGS_GENERATION": "false",
    "ENABLE_TITLE_GENERATION": "false",
}
"""What has Open WebUI ask a gateway as the people do who chat on it (0.12.4).

The gateway says which models there are, so everybody sees those: else a model is the administrator's alone until it is
shared by hand. A message is one request of what somebody has written: a title, tags and follow-ups would be three more,
the first of them before the answer, and each takes a slot. Tools of its own would be 21 KB before each message, which
is more than the context of a small model; an administrator may give them to a model all the same.
"""


class ChatPlan(Planned):
    """The page of a gateway: a container of this image, which asks with one user's key.

    `root` is the file of the controller with the certificate by which it knows the gateway. `number` is the user that
    it is in its container and on the host. `spec` hashes the text of `file`, all but itself.
    """

    image: str
    listen: str
    port: int
    user: str
    key: Secret
    gateway: str
    model: str
    root: Path | None = None
    number: str
    spec: str
    file: TextFile
