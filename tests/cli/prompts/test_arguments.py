"""Tests for parsing arguments from a shell by a tool's schema, with the errors for invalid ones."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from raincheck.cli.exit_codes import UsageError
from raincheck.cli.prompts.arguments import check_arguments, describe_schema, parse_arguments, read_files, titles_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Whose it is."},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "is_new": {"type": "boolean"},
        "nothing": {"type": "null"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "loose": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "where": {"type": "object"},
        "colour": {"$ref": "#/$defs/Colour"},
        "level": {"enum": [1, 2, "high"]},
        "anything": {},
    },
    "$defs": {"Colour": {"type": "string", "enum": ["red", "blue"]}},
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("name=Ada", "Ada"),
        ("name=5", "5"),
        ("name=true", "true"),
        ("name=", ""),
        ("name=a=b:=c", "a=b:=c"),
        ("name=two\nlines", "two\nlines"),
        ('name:="Ada"', "Ada"),
        ("count=-3", -3),
        ("count:=3", 3),
        ("ratio=1.5", 1.5),
        ("ratio=2", 2),
        ("ratio=1e3", 1000.0),
        ("is_new=true", True),
        ("is_new=No", False),
        ("nothing=null", None),
        ("maybe=null", None),
        ("maybe=4", 4),
        ("either=4", 4),
        ("either=four", "four"),
        ("tags=one", ["one"]),
        ('tags=["a", "b"]', ["a", "b"]),
        ("numbers=7", [7]),
        ("loose=word", "word"),
        ('where={"x": 1}', {"x": 1}),
        ("colour=red", "red"),
        ("level=2", 2),
        ("level=high", "high"),
        ("anything=[1]", [1]),
        ("anything=word", "word"),
        ("unknown=1", 1),
    ],
)
def test_a_value_is_parsed_by_the_schema(word: str, value: object) -> None:
    assert list(parse_arguments([word], SCHEMA).values()) == [value]


@pytest.mark.parametrize("word", ["count=1.5", "count=1_000", "ratio=nan", "is_new=perhaps", "where=x"])
def test_a_value_that_fits_no_type_stays_a_string_and_is_refused(word: str) -> None:
    read = parse_arguments([word], SCHEMA)
    (name, value), *_ = read.items()
    assert isinstance(value, str)
    with pytest.raises(UsageError, match=f"'{name}' is invalid, .* is not of type"):
        check_arguments("tool", read, SCHEMA)


def test_an_array_is_given_item_by_item() -> None:
    assert parse_arguments(["tags=a", "tags=b", 'tags=["c"]'], SCHEMA) == {"tags": ["a", "b", "c"]}


def test_other_arguments_may_be_given_only_once() -> None:
    with pytest.raises(UsageError, match="'count' is given twice"):
        parse_arguments(["count=1", "count=2"], SCHEMA)


def test_a_file_contains_all_arguments_and_later_words_override_it(tmp_path: Path) -> None:
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({"name": "Ada", "count": 1, "tags": ["x"]}))
    assert parse_arguments(read_files([f"@{file}", "count=2", "tags=y"]), SCHEMA) == {
        "name": "Ada",
        "count": 2,
        "tags": ["y"],
    }


def test_stdin_contains_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"name": "Ada"}'))
    assert parse_arguments(read_files(["-", "count=2"]), SCHEMA) == {"name": "Ada", "count": 2}


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("Ada", "'Ada' is not an argument: write name=value, name:=JSON, @file.json"),
        ("=Ada", "'=Ada' is not an argument"),
        ("count:=three", r"the value after count:= is not JSON \(.*\): quote it, as in count:='\[1, 2\]'"),
        ("@nope.json", r"nope.json can't be read \(No such file or directory\)"),
    ],
)
def test_an_unparsable_argument_is_refused_with_the_right_form(word: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_arguments(read_files([word]), SCHEMA)


@pytest.mark.parametrize(("text", "why"), [("[1]", "is of type list: it should be an object"), ("{", "is not JSON")])
def test_a_file_must_contain_an_object(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "arguments.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=why):
        read_files([f"@{file}"])


def test_all_missing_and_unknown_arguments_are_reported_with_their_types() -> None:
    schema = {**SCHEMA, "required": ["name", "colour"]}
    with pytest.raises(UsageError) as refused:
        check_arguments("paint", {"nmae": "Ada", "zzz": 1}, schema)
    assert str(refused.value).startswith(
        "paint can't be called with these values: unknown argument 'nmae', did you mean 'name'?; "
        "unknown argument 'zzz', known arguments: 'name', "
    )
    assert str(refused.value).endswith(
        "'name' is missing: name=… (string), Whose it is.; 'colour' is missing: colour=… (one of red, blue)"
    )


def test_a_nested_error_is_reported_with_its_path() -> None:
    with pytest.raises(
        UsageError, match=r"'numbers\.1' is invalid, 'x' is not of type 'integer': numbers=… \(array of int"
    ):
        check_arguments("tool", {"numbers": [1, "x"]}, SCHEMA)


@pytest.mark.parametrize(
    "more", [{"additionalProperties": True}, {"patternProperties": {"^x": {}}}, {"properties": {}}]
)
def test_additional_properties_are_passed_to_a_tool_that_allows_them(more: dict[str, Any]) -> None:
    check_arguments("tool", {"zzz": 1}, {**SCHEMA, **more})


@pytest.mark.parametrize(
    "broken",
    [{"type": "nonsense"}, {"$ref": "#/nowhere"}, {"$ref": "https://example.com/schema"}, {"$ref": "#/properties/x"}],
)
def test_an_invalid_schema_refuses_no_arguments(broken: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": broken}}
    check_arguments("tool", parse_arguments(["x=1"], schema), schema)


def test_a_schema_is_described() -> None:
    words = {name: describe_schema(kind, SCHEMA) for name, kind in SCHEMA["properties"].items()}
    assert words["maybe"] == "integer or null"
    assert words["numbers"] == "array of integer"
    assert words["colour"] == "one of red, blue"
    assert words["level"] == "one of 1, 2, high"
    assert words["anything"] == "anything"
    assert describe_schema({"type": "string", "format": "date"}, {}) == "string (date)"


def test_choices_have_titles_in_both_notations() -> None:
    assert titles_of({"enum": ["r", "b"], "enumNames": ["Red", "Blue"]}, {}) == ["Red", "Blue"]
    assert titles_of({"oneOf": [{"const": "r", "title": "Red"}, {"const": "b"}]}, {}) == ["Red", "b"]
