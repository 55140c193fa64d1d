"""A page that people chat on, as it must be on the gateway's host: never a key, only where keys are."""

from __future__ import annotations

from pathlib import Path

from llamaherd.inventory.schema import Secret
from llamaherd.plan.base import Planned, TextFile


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
