"""What the models of an inventory have in common: names, sizes, paths, secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    model_validator,
)

from llamaherd.characters import one_line
from llamaherd.units import parse_megahertz, parse_percent, parse_size, parse_watts


class Declared(BaseModel):
    """Base of all that is declared: frozen, and an unknown key is an error.

    What a key means stands in a text below it; `schema.py` reads these, as only editors want them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)


def beside_inventory(value: Any, info: ValidationInfo) -> Any:
    """A relative path is relative to the YAML file that names it; `~` is the controller's home."""
    if not isinstance(one_line(value), str):
        return value
    folder = (info.context or {}).get("folder", Path())
    try:
        return os.path.normpath(Path(folder, Path(value).expanduser()))
    except RuntimeError:
        raise ValueError(f"there is no such home as in `{value}`") from None


LocalPath = Annotated[Path, BeforeValidator(beside_inventory)]
Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=str | int), Field(gt=0)]
Watts = Annotated[int, BeforeValidator(parse_watts, json_schema_input_type=str | int), Field(gt=0)]
Megahertz = Annotated[int, BeforeValidator(parse_megahertz, json_schema_input_type=str | int), Field(gt=0)]
Percent = Annotated[int, BeforeValidator(parse_percent, json_schema_input_type=str | int), Field(ge=1, le=100)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Port = Annotated[int, Field(ge=1, le=65535)]


class Secret(Declared):
    """Where a secret is to be had when it is needed: a file of the controller, or its environment."""

    file: LocalPath | None = None
    """File of this machine that holds the secret and nothing else."""
    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Name of an environment variable of this machine that holds it."""

    @model_validator(mode="after")
    def _one_kind(self) -> Secret:
        if (self.file is None) == (self.env is None):
            raise ValueError("give either `file` or `env`")
        return self
