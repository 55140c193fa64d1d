"""Single mistakes at each key of an inventory: what is said has no shape in it, and what it shows passes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from llamaherd.checks.mistakes import mistake
from llamaherd.diagnostics.findings import Finding
from llamaherd.inventory import schema as fleet
from llamaherd.inventory.schema import Rig, fleet_file
from llamaherd.inventory.schema.base import Declared
from llamaherd.inventory.schema.keys import EXAMPLES, container_type, declared_at, key_choices
from llamaherd.inventory.yaml_file import Document
from llamaherd.inventory.yaml_text import Loader
from tests.support.sample import drawn
from tests.text.test_hostile_strings import Path_, named, put, rigs_for

KNOWN = {**vars(fleet), **vars(fleet_file), **vars(fleet_file)}.values()
MODELS = dict.fromkeys(model for model in KNOWN if isinstance(model, type) and issubclass(model, Declared))
EVERY_FIELD = sorted(
    f"{model.__name__}.{field.alias or name}"
    for model in MODELS
    if model.__name__ not in ("Declared", "Fleet", "FleetFile")
    for name, field in model.model_fields.items()
)
WRONG: tuple[Any, ...] = ([], {}, [[]], {"a": {}}, -1, 10**12, 1.5, True, "", "no such thing", "x" * 500, "1e9", None)
OTHER_DIGITS = (
    "\N{MATHEMATICAL DOUBLE-STRUCK DIGIT ONE}%",
    "\N{ARABIC-INDIC DIGIT THREE}",
    "\N{FULLWIDTH DIGIT EIGHT} GB",
    "\N{SUPERSCRIPT TWO}",
)
SHAPES = re.compile(
    r"\^|\\d|\[0-9|\[A-Z|\$`|constrained|(?<!in)valid |tuple|dictionary|function-|Input should|instance of|"
    r"\bKEY\b|\bVALUE\b|pydantic|"
    r"\bNone\b|Literal|greater than|less than or|parsable|unable to"
)


def fields(model: type[BaseModel] = Rig, here: Path_ = ()) -> list[Path_]:
    """The path of every key, those below an owner's names under `a`."""
    found = []
    for name, field in model.model_fields.items():
        at: Path_ = (*here, field.alias or name)
        below = declared_at(at)
        inner = _inner(below.annotation)
        found.append(at)
        if isinstance(inner, tuple):
            found += fields(inner[0], (*at, "a"))
        elif inner is not None:
            found += fields(inner, at)
    return found


def _inner(annotation: Any) -> Any:
    kind = container_type(annotation)
    args = getattr(kind, "__args__", ())
    if args and isinstance(args[-1], type) and issubclass(args[-1], BaseModel):
        return (args[-1],)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


PATHS = fields()


def findings(declared: dict[str, Any]) -> list[Finding]:
    document = Document(Path("a.yaml"), declared, {}, {})
    try:
        Rig.model_validate(declared, context={"folder": Path("/srv")})
    except ValidationError as error:
        return [mistake(document, dict(each), thorough=True).finding for each in error.errors(include_url=False)]
    return []


def test_each_field_has_an_example() -> None:
    assert sorted(EXAMPLES) == EVERY_FIELD


@pytest.mark.parametrize("path", drawn(PATHS), ids=named)
def test_no_shape_is_said(path: Path_) -> None:
    for wrong in (*WRONG, *OTHER_DIGITS):
        declared, at = next(rigs_for(path))
        if changed := put(declared, at, wrong):
            for found in findings(changed):
                assert not SHAPES.search(f"{found.message} {found.help}"), str(found)
                assert len(found.message) < 400
                if shown := re.search(r"write (?:it like )?`([^`]+)`", found.help):
                    assert isinstance(yaml.safe_load(shown[1]), dict), found.help


@pytest.mark.parametrize("path", drawn(PATHS), ids=named)
def test_the_example_passes(path: Path_) -> None:
    found = declared_at(path)
    key, value = found.field.partition(".")[2], EXAMPLES[found.field]
    example = yaml.load(f"{key}: {value}", Loader=Loader)[key]
    accepted = []
    for declared, at in rigs_for(path):
        changed = put(declared, at, example)
        try:
            Rig.model_validate(changed, context={"folder": Path("/srv")})
            accepted.append(True)
        except ValidationError as error:
            accepted.append(not any(each["loc"][: len(at)] == at for each in error.errors()))
    assert any(accepted)


@pytest.mark.parametrize("path", drawn(path for path in PATHS if key_choices(declared_at(path).annotation)), ids=named)
def test_a_misspelt_word_is_asked_about(path: Path_) -> None:
    word = max(key_choices(declared_at(path).annotation), key=len)
    declared, at = next(rigs_for(path))
    changed = put(declared, at, word[:-1] + "~") if len(word) > 4 else None
    if changed:
        said = " ".join(each.help for each in findings(changed))
        assert f"{word}`?" in said or "known names: " in said


@pytest.mark.parametrize("path", drawn(PATHS), ids=named)
def test_a_misspelt_key_is_asked_about(path: Path_) -> None:
    if len(str(path[-1])) < 4:
        return
    declared, at = next(rigs_for(path))
    changed = put(declared, (*at[:-1], f"{at[-1]}x"), "1")
    if changed is not None and at[:-1] != ():
        helps = [each.help for each in findings(changed) if each.code == "LH010"]
        # `filex` may be `file`, and `files`.
        assert helps in ([], [f"did you mean `{path[-1]}`?"]) or path[-2:] == ("a", "file")


@pytest.mark.parametrize(
    ("path", "wrong", "said"),
    [
        (("gpus", "cuda"), "13", 'did you mean `cuda: "13.0"`?'),
        (("engines", "main", "kind"), "ik-llama.cpp", "did you mean `kind: ik_llama.cpp`?"),
        (("instances", "worker", "experts_on_cpu"), OTHER_DIGITS[0], "did you mean `experts_on_cpu: 1%`?"),
        (("instances", "reasoner", "on"), "new", "did you mean `on: [new]`?"),
        (("instances", "reasoner", "tensor_split"), "1", "did you mean `tensor_split: [1]`?"),
    ],
)
def test_what_to_write(path: Path_, wrong: Any, said: str) -> None:
    declared = [declared for declared, _ in rigs_for(("rig",))][1]
    (found, *_) = findings(put(declared, path, wrong))
    assert found.help == said
