"""The field of the models, its type, and the value at a path of the YAML."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.inventory.yaml_file import Path_


class DeclaredAt(NamedTuple):
    """The field at a path: the path without pydantic's own words, the field's name for examples, its type."""

    path: Path_
    field: str
    annotation: Any


def declared_at(path: Path_) -> DeclaredAt:
    """Return the field of the models at a path, or at its nearest parent."""
    annotation: Any = FleetFile if path and path[0] in FleetFile.model_fields else Rig
    field, at = "", list[str | int]()
    for part in path:
        kind = container_type(annotation)
        if get_origin(kind) is tuple and isinstance(part, str):
            kind = container_type(get_args(kind)[0])  # one where several could be
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found = next((f for name, f in kind.model_fields.items() if (f.alias or name) == part), None)
            if found is None:
                break
            field = f"{kind.__name__}.{part}"
            annotation = Annotated[(found.annotation, *found.metadata)] if found.metadata else found.annotation
        elif get_origin(kind) is dict and isinstance(part, str):
            annotation = get_args(kind)[1]
        elif get_origin(kind) is tuple and isinstance(part, int):
            annotation = get_args(kind)[0]
        else:
            break
        at.append(part)
    return DeclaredAt(tuple(at), field, annotation)


def container_type(annotation: Any) -> Any:
    """Return `X` of `X | None` and of `Annotated[X, …]`; of several kinds, the container."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kinds = [container_type(part) for part in get_args(annotation) if part is not type(None)]
    holding = (kind for kind in kinds if get_origin(kind) in (dict, tuple) or hasattr(kind, "model_fields"))
    return next(holding, kinds[0])


def key_choices(annotation: Any) -> list[str]:
    """Return the allowed words of a key; none if it also accepts other values."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    if get_origin(annotation) in (Union, UnionType):
        parts = [key_choices(part) for part in get_args(annotation) if part is not type(None)]
        return [word for part in parts for word in part] if all(parts) else []
    return []


def value_at(data: Any, path: Path_) -> Any:
    """Return the value at a path of plain data; None if there is none."""
    for part in path:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data
