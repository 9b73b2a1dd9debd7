"""Validate values against JSON Schemas, in bounded time.

Callers choose the values, and other servers choose schemas, so neither may stop the program. Patterns are matched by
the engine of `pydantic`, which takes linear time and so has no look-around and no back-references. A schema with
alternatives that refer to themselves can still take exponential time, so a value may be compared only with so many
subschemas. No schema makes the program fetch anything: only references within the schema are resolved.

`jsonschema` is imported on first use, which takes a tenth of a second, since most programs never need it.
"""

# ruff: noqa: ANN401 - the stubs of jsonschema and pydantic leave types open

from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from jsonschema import ValidationError

Schema: TypeAlias = Mapping[str, Any]
Errors: TypeAlias = "Iterator[ValidationError]"

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of a schema that declares no other."""


class InvalidSchema(Exception):
    """A JSON Schema is invalid, or has a reference that can't be resolved."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path
        """The path of the invalid value in the schema."""


def check_schema(schema: Schema, *, dialect: str | None = None) -> None:
    """Check that a schema is valid in a dialect: by default, in the one that it declares.

    Raises:
        InvalidSchema: it is invalid, has a pattern that can't be matched in linear time, or refers to another document.
    """
    from jsonschema.exceptions import SchemaError

    try:
        # Without a check of formats: patterns are compiled below.
        _validator_class(schema if dialect is None else {"$schema": dialect}).check_schema(schema, format_checker=None)
        _check_subschemas(schema)
    except SchemaError as error:
        raise InvalidSchema(error.message, tuple(error.absolute_path)) from error
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise InvalidSchema(f"it is not a schema: {type(error).__name__}") from error


def _check_subschemas(schema: Schema) -> None:
    subschemas = list(_subschemas(schema))
    documents = {str(subschema.get("$id")) for subschema in subschemas}
    for subschema in subschemas:
        patterns = cast("Mapping[str, object]", subschema.get("patternProperties", {}))
        for pattern in (*patterns, *([subschema["pattern"]] if "pattern" in subschema else [])):
            _compile(pattern)
        if patterns and any("unevaluatedProperties" in other for other in subschemas):
            raise InvalidSchema("patternProperties and unevaluatedProperties can't be used in one schema")
        for keyword in ("$ref", "$dynamicRef"):
            document = str(subschema.get(keyword, "")).partition("#")[0]
            if document and document not in documents:
                raise InvalidSchema(
                    f"the reference {subschema[keyword]!r} is to another document, which is never fetched: copy what "
                    f"it refers to into $defs"
                )


class SchemaValidator:
    """Validates values against a schema. `check_schema` checks the schema itself."""

    def __init__(self, schema: Schema) -> None:
        from referencing import Registry

        # The registry is empty, so that no reference is fetched.
        self._validator = _validator_class(schema)(schema, registry=Registry[Any]())

    def errors(self, value: object) -> Errors:
        """Return the errors of a value.

        Raises:
            InvalidSchema: the schema has a reference that can't be resolved, or refers to itself without end.
        """
        from jsonschema import ValidationError
        from referencing.exceptions import Unresolvable

        token = _comparisons_left.set(iter(range(_max_comparisons(value))))
        try:
            errors = list(self._validator.iter_errors(value))
        except _TooManyComparisons:
            errors = [ValidationError("it has too many levels for the alternatives in its schema")]
        except OverflowError:
            errors = [ValidationError("it has a number that is too large")]
        except (Unresolvable, AttributeError, TypeError, RecursionError) as error:
            raise InvalidSchema(str(error)) from error
        finally:
            _comparisons_left.reset(token)
        return iter(errors)


MIN_COMPARISONS = 20_000
COMPARISONS_PER_ITEM = 50
"""How often a value may be compared with a subschema: this often for each item in it, and at least so often."""

_comparisons_left: ContextVar[Iterator[int]] = ContextVar("raincheck_schema_comparisons_left")


class _TooManyComparisons(Exception):
    """A value was compared with more subschemas than any reasonable schema needs."""


def _max_comparisons(value: object) -> int:
    items: list[Any] = [value]
    for item in items:
        if isinstance(item, Mapping):
            items.extend(cast("Mapping[str, Any]", item).values())
        elif isinstance(item, list):
            items.extend(cast("list[Any]", item))
    return MIN_COMPARISONS + COMPARISONS_PER_ITEM * len(items)


def _validator_class(schema: Schema) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return _in_linear_time(validator_for(schema, default=Draft202012Validator))


@cache
def _in_linear_time(dialect: Any) -> Any:
    """Return a validator of the dialect without the keywords whose time a caller could make grow without a bound."""
    from jsonschema import validators

    keywords: dict[str, Any] = {
        "pattern": _check_pattern,
        "patternProperties": _check_pattern_properties,
        "additionalProperties": _check_additional_properties,
        "uniqueItems": _check_unique_items,
    }
    extended = cast("Any", validators).extend(dialect, keywords)
    evolve = extended.evolve

    def evolve_in_linear_time(validator: Any, **changes: Any) -> Any:
        """Return the validator of a subschema, which `jsonschema` asks for with each comparison."""
        if next(_comparisons_left.get(), None) is None:
            raise _TooManyComparisons
        schema = changes.get("schema", validator.schema)
        if isinstance(schema, Mapping) and "$schema" in schema:
            # `jsonschema` would continue with its own validator of that dialect.
            schema = cast("Schema", schema)
            changes["schema"] = {name: value for name, value in schema.items() if name != "$schema"}
        return evolve(validator, **changes)

    extended.evolve = evolve_in_linear_time
    return extended


@lru_cache(maxsize=512)
def _compile(pattern: str) -> Any:
    from pydantic_core import SchemaError, core_schema
    from pydantic_core import SchemaValidator as Matcher

    try:
        return Matcher(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("error: ")
        raise InvalidSchema(f"the pattern {pattern!r} can't be used: {reason}") from error


def _matches(pattern: str, text: str) -> bool:
    return _compile(pattern).isinstance_python(text)


def _subschemas(schema: Schema) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas in it, where its dialect has schemas."""
    from referencing import Resource
    from referencing.jsonschema import DRAFT202012, specification_with

    dialect = specification_with(str(schema.get("$schema", DIALECT)), default=DRAFT202012)
    found: list[Resource[Any]] = [Resource(schema, dialect)]
    while found:
        resource = found.pop()
        # The others are true or false.
        if isinstance(resource.contents, Mapping):
            yield cast("Mapping[str, Any]", resource.contents)
        found.extend(resource.subresources())


def _check_pattern(validator: Any, pattern: str, value: Any, _: Schema) -> Errors:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and not _matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _check_pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Any, _: Schema) -> Errors:
    if validator.is_type(value, "object"):
        for pattern, subschema in patterns.items():
            for name in filter(partial(_matches, pattern), value):
                yield from validator.descend(value[name], subschema, path=name, schema_path=pattern)


def _check_additional_properties(validator: Any, allowed: Any, value: Any, schema: Schema) -> Errors:
    from jsonschema import ValidationError

    if not validator.is_type(value, "object"):
        return
    patterns: Mapping[str, Any] = schema.get("patternProperties", {})
    named: Mapping[str, Any] = schema.get("properties", {})
    extras = [name for name in value if name not in named and not any(_matches(pattern, name) for pattern in patterns)]
    if validator.is_type(allowed, "object"):
        for name in extras:
            yield from validator.descend(value[name], allowed, path=name)
    elif not allowed and extras:
        names = ", ".join(map(repr, sorted(extras)))
        if patterns:
            verb, choices = "does" if len(extras) == 1 else "do", ", ".join(map(repr, sorted(patterns)))
            yield ValidationError(f"{names} {verb} not match any of the regexes: {choices}")
        else:
            verb = "was" if len(extras) == 1 else "were"
            yield ValidationError(f"Additional properties are not allowed ({names} {verb} unexpected)")


def _check_unique_items(validator: Any, is_unique: Any, value: Any, _: Schema) -> Errors:
    from jsonschema import ValidationError

    if is_unique and validator.is_type(value, "array") and len(set(map(_hashable, value))) < len(value):
        yield ValidationError(f"{value!r} has non-unique elements")


def _hashable(value: Any) -> object:
    """Return objects that are equal for values that JSON Schema considers equal: 1 and 1.0, but not 1 and true."""
    if isinstance(value, bool):
        return _hashable, value
    if isinstance(value, list):
        return tuple(map(_hashable, cast("list[Any]", value)))
    if isinstance(value, Mapping):
        return frozenset((name, _hashable(item)) for name, item in cast("Mapping[str, Any]", value).items())
    return value
