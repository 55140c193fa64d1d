"""Results as values, for tests: a small one, and one in which every field says something."""

from __future__ import annotations

import types
import typing
from typing import Any

from pydantic.fields import FieldInfo

from llamaherd.measure.results.result import Cell, Condition, Kind, Recorded, Result, Run
from llamaherd.measure.results.store import free_texts

IN_FORM = {"began": "2026-11-23T20:15:00Z", "rig": "duo", "instance": "chat"}


def run(tokens_per_second: float = 100.0, n: int = 257, **more: Any) -> Run:
    """A request that was answered at this speed."""
    return Run(predicted_n=n, predicted_ms=1000 * max(1, n - 1) / tokens_per_second, **more)


def result(*runs: Run, kind: Kind = "code", **more: Any) -> Result:
    """A result with one cell."""
    cells = (Cell(condition=Condition(kind=kind, generated=256), runs=runs),)
    return Result(**({"llamaherd": "0.1.0", "cells": cells} | IN_FORM | more))


def full(model: type[Recorded], text: str) -> Any:
    """A value of a model in which every field is there, and every free text is this one."""
    return model(**{name: filled(model, name, field, text) for name, field in model.model_fields.items()})


def filled(model: type[Recorded], name: str, field: FieldInfo, text: str) -> Any:
    if name in free_texts(model):
        kind = typing.get_origin(field.annotation)
        return (text,) if kind is tuple else {text: text} if kind is dict else text
    return (IN_FORM | {"ended": "2026-11-23T20:18:00Z"}).get(name) or of_type(field.annotation, name, text)


def of_type(kind: Any, name: str, text: str) -> Any:
    """A value of a type that is no free text."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return of_type(next(each for each in inner if each is not type(None)), name, text)
    if origin is typing.Annotated:
        return of_type(inner[0], name, text)
    if origin is typing.Literal:
        return inner[0]
    if origin is tuple:
        return (of_type(inner[0], name, text),)
    if issubclass(kind, Recorded):
        return full(kind, text)
    return {int: 1 if name != "start" else 0, float: 1.5, bool: True, str: "a" * (64 if name == "sha256" else 12)}[kind]
