"""JSON Schemas are checked in their dialect, never fetched, and validate every value in bounded time."""

from typing import Any

import pytest

from raincheck.core.json_schema import DIALECT, InvalidSchema, SchemaValidator, check_schema

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def test_an_invalid_schema_is_refused_with_the_path_of_the_fault() -> None:
    with pytest.raises(InvalidSchema, match="'text' is not valid") as raised:
        check_schema({"properties": {"a": {"type": "text"}}})
    assert raised.value.path == ("properties", "a", "type")


def test_a_schema_is_checked_in_the_dialect_that_it_declares_or_in_the_one_that_is_asked_for() -> None:
    schema = {"$schema": DRAFT_7, "items": [{"type": "string"}]}
    check_schema(schema)
    with pytest.raises(InvalidSchema):
        check_schema(schema, dialect=DIALECT)
    assert [error.message for error in SchemaValidator(schema).errors([1])] == ["1 is not of type 'string'"]


@pytest.mark.parametrize("reference", ["#/$defs/missing", "https://example.org/schema.json", "#"])
def test_a_reference_that_cannot_be_resolved_is_an_error_of_the_schema(reference: str) -> None:
    with pytest.raises(InvalidSchema):
        list(SchemaValidator({"$ref": reference}).errors(1))


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize("reference", ["https://example.org/schema.json", "file:///etc/hostname#/a", "other.json"])
def test_a_reference_to_another_document_is_refused_when_the_schema_is_checked(keyword: str, reference: str) -> None:
    with pytest.raises(InvalidSchema, match=r"is to another document, which is never fetched: copy what it refers to"):
        check_schema({"properties": {"a": {"items": {keyword: reference}}}})


def test_references_within_the_schema_are_accepted() -> None:
    own = {"$defs": {"name": {"$id": "urn:example:name", "type": "string"}}, "$ref": "#/$defs/name"}
    check_schema(own)
    check_schema({**own, "$ref": "urn:example:name"})
    check_schema({"properties": {"$ref": {"type": "string"}}, "enum": [{"$ref": "https://example.org/data"}]})


BOMB = "a" * 50_000 + "!"
"""A text for which a backtracking engine would need longer than the universe has existed."""


@pytest.mark.parametrize(
    ("schema", "value", "count"),
    [
        ({"pattern": "^(a+)+$"}, BOMB, 1),
        ({"pattern": "^(a|aa)*$"}, BOMB, 1),
        ({"patternProperties": {"^(a+)+$": {"type": "integer"}}}, {BOMB: "text", "aa": "text", "a": 1}, 1),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {BOMB: 1, "aaa": 1}, 1),
        ({"additionalProperties": {"type": "integer"}}, {"a": "text", "b": 1}, 1),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1, "b": 1, "c": 1}, 1),
    ],
)
def test_patterns_take_linear_time(schema: dict[str, object], value: object, count: int) -> None:
    check_schema(schema)
    assert len(list(SchemaValidator(schema).errors(value))) == count


def test_errors_of_additional_properties_name_them_and_the_patterns() -> None:
    errors = SchemaValidator({"patternProperties": {"^x-": {}}, "additionalProperties": False}).errors({"b": 1, "a": 1})
    assert [error.message for error in errors] == ["'a', 'b' do not match any of the regexes: '^x-'"]
    errors = SchemaValidator({"properties": {"a": {}}, "additionalProperties": False}).errors({"a": 1, "b": 1})
    assert [error.message for error in errors] == ["Additional properties are not allowed ('b' was unexpected)"]


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(", "(a{1000}){1000}"])
@pytest.mark.parametrize("place", ["pattern", "patternProperties"])
def test_a_pattern_that_cannot_be_matched_in_linear_time_is_refused(pattern: str, place: str) -> None:
    schema: dict[str, Any] = {place: pattern if place == "pattern" else {pattern: {}}}
    with pytest.raises(InvalidSchema, match="can't be used"):
        check_schema({"properties": {"a": {"anyOf": [schema]}}})
    # Also where no check looks: a place that only a reference reaches.
    with pytest.raises(InvalidSchema, match="can't be used"):
        list(SchemaValidator({"$ref": "#/x", "x": schema}).errors("a" if place == "pattern" else {"a": 1}))


def test_a_property_or_a_constant_named_pattern_is_no_pattern() -> None:
    check_schema({"properties": {"pattern": {"const": {"pattern": "("}}}})


def test_pattern_properties_and_unevaluated_properties_are_refused_together() -> None:
    # `jsonschema` would match these patterns with a backtracking engine.
    with pytest.raises(InvalidSchema, match="can't be used in one schema"):
        check_schema({"allOf": [{"patternProperties": {"a": {}}}], "unevaluatedProperties": False})


def test_many_items_are_compared_in_linear_time() -> None:
    # Mixed types can't be sorted, so each would be compared with each.
    items = [[number] if number % 2 else {"number": number} for number in range(100_000)]
    validator = SchemaValidator({"uniqueItems": True})
    assert not list(validator.errors(items))
    assert len(list(validator.errors([*items, {"number": 0}]))) == 1


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([1, 1.0], False),
        ([1, True], True),
        ([0, False, None, ""], True),
        ([[1, {"a": True}], [1, {"a": 1}]], True),
        ([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], False),
    ],
)
def test_items_are_equal_as_in_json_schema(items: list[Any], is_unique: bool) -> None:
    assert (not list(SchemaValidator({"uniqueItems": True}).errors(items))) is is_unique


def test_a_schema_of_an_unknown_dialect_is_read_as_one_of_the_default() -> None:
    with pytest.raises(InvalidSchema, match="can't be used"):
        check_schema({"$schema": "urn:example:dialect", "properties": {"a": {"pattern": "(?=a)b"}}})


@pytest.mark.parametrize("dialect", [DIALECT, DRAFT_7])
def test_patterns_take_linear_time_in_subschemas_that_declare_a_dialect(dialect: str) -> None:
    pattern = {"pattern": "^(a+)+$"}
    bomb = "a" * 50 + "!"
    for schema, value in (
        ({"$schema": dialect, "properties": {"child": {"$ref": "#"}, "name": pattern}}, {"child": {"name": bomb}}),
        ({"properties": {"name": {"$schema": dialect, **pattern}}}, {"name": bomb}),
    ):
        check_schema(schema)
        assert len(list(SchemaValidator(schema).errors(value))) == 1


def test_a_value_with_many_levels_of_alternatives_is_an_error_and_takes_no_exponential_time() -> None:
    levels = [{"type": "object", "properties": {"op": {"const": op}, "left": {"$ref": "#"}}} for op in ("and", "or")]
    validator = SchemaValidator({"oneOf": [*levels, {"type": "null"}]})
    value: Any = None
    for _ in range(5):
        value = {"op": "or", "left": value}
    assert not list(validator.errors(value))
    for _ in range(30):
        value = {"op": "or", "left": value}
    (error,) = validator.errors(value)
    assert "too many levels for the alternatives" in error.message


@pytest.mark.parametrize("schema", [{"$schema": 5}, {"$schema": []}, {"pattern": "(" * 2_000 + ")" * 2_000}])
def test_what_is_no_schema_at_all_is_refused_as_one(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchema):
        check_schema(schema)


def test_a_number_that_is_too_large_is_an_error_of_the_value() -> None:
    (error,) = SchemaValidator({"multipleOf": 0.5}).errors(10**400)
    assert error.message == "it has a number that is too large"
