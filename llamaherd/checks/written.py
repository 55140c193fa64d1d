"""Arguments said again as keys of an instance, as one would write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from llamaherd.engines.flags.keys import said_by


def as_keys(words: Iterable[str]) -> str:
    """The keys that say the same, each between backquotes; empty where there are none."""
    return ", ".join(f"`{line}`" for line in _lines(said_by(words).keys))


def _lines(keys: Mapping[str, Any]) -> list[str]:
    """Keys as one would write them: `draft: {mtp: 2}`, `flash_attention: on`."""
    return [f"{key}: {_flow(value)}" for key, value in keys.items()]


def _flow(value: Any) -> str:
    """A value on one line. `on` and `off` are words in an inventory."""
    if value in ("on", "off"):
        return str(value)
    flow = True if isinstance(value, list | dict) else None
    return yaml.safe_dump(value, default_flow_style=flow, width=1e9, sort_keys=False).removesuffix("\n...\n").strip()
