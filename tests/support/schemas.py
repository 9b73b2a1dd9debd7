"""Validate messages against the pinned, published schemas.

The schema files have the structure of the published schemas without their prose. For 2026-07-28, definitions are taken
from the tasks extension first and then from the core protocol. In 2025-11-25 tasks belong to the core protocol.
"""

import json
import math
from functools import cache
from importlib import import_module
from typing import Any

from referencing import Registry

from tests.support import ROOT

FOLDER = ROOT / "tests/wire/schemas"

# jsonschema is only partly typed, so it is used as untyped.
jsonschema: Any = import_module("jsonschema")


def _is_integer(_checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_checker: object, value: object) -> bool:
    return _is_integer(_checker, value) or (isinstance(value, float) and math.isfinite(value))


_NOTHING: Registry[Any] = Registry()
"""The schemas have no external references, and nothing is fetched."""

# JSON Schema accepts 5.0 as an integer, and Python's NaN as a number. Clients in other languages accept neither.
_BASE: Any = jsonschema.Draft202012Validator
_STRICT: Any = jsonschema.validators.extend(
    _BASE, type_checker=_BASE.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
)


def validate(name: str, value: object, version: str = "2026-07-28") -> None:
    """Fail unless the value fits the schema's definition `name`, such as `GetTaskResult`."""
    error: Any = jsonschema.exceptions.best_match(_validator(name, version).iter_errors(value))
    assert error is None, f"this is no {name}: at {error.json_path}, {error.message}"


def definitions(schema: str) -> dict[str, Any]:
    """The definitions of a pinned schema by name."""
    return json.loads((FOLDER / f"{schema}.json").read_text(encoding="utf-8"))["$defs"]


@cache
def _validator(name: str, version: str) -> Any:
    for known in _SCHEMAS[version]:
        if name in known:
            return _STRICT({"$ref": f"#/$defs/{name}", "$defs": known}, registry=_NOTHING)
    raise LookupError(f"no pinned schema knows {name!r}")


_SCHEMAS = {
    "2026-07-28": (definitions("tasks-2026-07-28"), definitions("mcp-2026-07-28")),
    "2025-11-25": (definitions("mcp-2025-11-25"),),
}
