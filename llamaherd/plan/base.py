"""`Planned`, the base of all parts of a plan, and the files among them."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints


def digest(*parts: object) -> str:
    """Return a short hash of JSON-able values, for ids and specs: 12 hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Planned(BaseModel):
    """The base of all parts of a plan: plain, frozen, comparable."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


class TextFile(Planned):
    """A file with its whole text; `owner` is a user's name, or a number that no user has."""

    path: str
    text: str
    mode: Annotated[str, StringConstraints(pattern=r"^[0-7]{3,4}$")] = "0644"
    owner: str = "root"
