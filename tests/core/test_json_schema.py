"""JSON Schemas are checked in their dialect, and never fetched."""

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
