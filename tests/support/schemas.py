"""The published schemas, pinned: what is sent is checked against them.

The files beside this one have their structure and none of their prose. For 2026-07-28 the tasks extension is looked at
first, and what it does not know is looked for in the core protocol; in 2025-11-25 tasks are of the core protocol.
"""

import json
import math
from functools import cache
from importlib import import_module
from typing import Any

from referencing import Registry

from tests.support import ROOT

FOLDER = ROOT / "tests/wire/schemas"

# Half typed, so taken as not typed at all.
jsonschema: Any = import_module("jsonschema")


def _is_integer(_checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_checker: object, value: object) -> bool:
    return _is_integer(_checker, value) or (isinstance(value, float) and math.isfinite(value))


_NOTHING: Registry[Any] = Registry()
"""The schemas refer to nothing outside, and nothing is ever fetched."""

# JSON Schema takes 5.0 for an integer, and Python's NaN for a number. Clients in other languages take neither.
_BASE: Any = jsonschema.Draft202012Validator
_STRICT: Any = jsonschema.validators.extend(
    _BASE, type_checker=_BASE.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
)


def validate(name: str, value: object, version: str = "2026-07-28") -> None:
    """Fail unless the value is what the schema calls `name`, such as `GetTaskResult`."""
    error: Any = jsonschema.exceptions.best_match(_validator(name, version).iter_errors(value))
    assert error is None, f"this is no {name}: at {error.json_path}, {error.message}"


def definitions(schema: str) -> dict[str, Any]:
    """What a pinned schema defines, by name."""
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
