"""Types shared by the models of an inventory: names, sizes, paths, secrets."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from llamaherd.text.numbers import parse_megahertz, parse_percent, parse_size, parse_watts
from llamaherd.text.quoting import one_line


def wrong(message: str, help_: str, at: str = "") -> PydanticCustomError:
    """Return a validator's error with a suggestion; `at` is the key that it is about, of several."""
    return PydanticCustomError("wrong", "{message}", {"message": message, "help": help_, "at": at})


class Declared(BaseModel):
    """The base of all models: frozen, and an unknown key is an error.

    The docstring below a key is its description, which `json_schema.py` reads for editors.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False, serialize_by_alias=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` for a number: Python reads it as 1."""
        if isinstance(value, bool) and info.field_name in _numbers(cls):
            raise PydanticKnownError("int_type")
        return value


@cache
def _numbers(model: type[BaseModel]) -> frozenset[str]:
    """Return the fields that accept numbers, but neither true nor false."""
    kinds = {name: frozenset(_kinds(field.annotation)) for name, field in model.model_fields.items()}
    return frozenset(name for name, of in kinds.items() if of & {int, float} and bool not in of)


def _kinds(annotation: Any) -> list[Any]:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in _kinds(part)]
    return [annotation]


def windows_path(text: str) -> str:
    """Return where WSL has a path of Windows, such as `C:\\models`; empty if it is another text."""
    found = re.fullmatch(r"([A-Za-z]):[\\/](.*)", text)
    return f"/mnt/{found[1].lower()}/{found[2].replace(chr(92), '/')}" if found else ""


def beside_inventory(value: Any, info: ValidationInfo) -> Any:
    """Resolve a path. A relative path is relative to its YAML file; `~` is the controller's home."""
    if not isinstance(one_line(value), str):
        return value
    if there := windows_path(value):
        raise wrong(f"`{value}` is a path of Windows", f"write a path of this machine; under WSL it is `{there}`")
    folder = (info.context or {}).get("folder", Path())
    try:
        return os.path.normpath(Path(folder, Path(value).expanduser()))
    except RuntimeError:
        raise ValueError(f"there is no home folder for `{value}`") from None


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
    """The source of a secret: a file of the controller, or an environment variable."""

    file: LocalPath | None = None
    """File of this machine that contains only the secret."""
    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Environment variable of this machine with the secret."""

    @model_validator(mode="after")
    def _one_kind(self) -> Secret:
        if self.file is not None and self.env is not None:
            raise wrong("the secret is to be had in one place, and two are named", "leave out `file` or `env`")
        if self.file is None and self.env is None:
            raise wrong("the secret has no source", "add `file: keys/coder`, or `env: CODER_KEY`")
        return self
