"""Jinja2's expressions, and of what they can do only what ends soon and touches nothing but JSON.

The author of a file is trusted with its commands, but values come from callers: no value may make an expression take
all the memory, run for ever, or reach what is behind an object. So functions, filters and methods are few, named here,
and those that can make much out of little are bounded.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from jinja2 import StrictUndefined, Undefined
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from raincheck.core.payload import Json, encode

TEXT_LIMIT = 8_000_000
VALUE_SIZE = 8
"""What a value of a list or an object counts for, besides its text."""
BITS_LIMIT = 4_096

METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset({
        "capitalize", "count", "endswith", "find", "isalnum", "isalpha", "isdigit", "islower", "isspace", "isupper",
        "lower", "lstrip", "removeprefix", "removesuffix", "rfind", "rsplit", "rstrip", "split", "splitlines",
        "startswith", "strip", "title", "upper",
    }),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
}  # fmt: skip

FROM_JINJA = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length",
    "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "title",
    "trim", "unique", "upper",
)  # fmt: skip
"""Filters that make nothing large out of something small."""


def bounded(size: int) -> None:
    if size > TEXT_LIMIT:
        raise SecurityError(f"it would make something of {size:,} characters or items: {TEXT_LIMIT:,} are allowed")


def join(values: Iterable[Any], separator: str = "") -> str:
    texts = [text_of(value) for value in values]
    bounded(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def replace(text: str, old: str, new: str) -> str:
    text, old, new = text_of(text), text_of(old), text_of(new)
    bounded(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def rounded(number: float, digits: int = 0) -> float:
    if not -15 <= digits <= 15:
        raise SecurityError(f"a number is rounded to -15 to 15 digits, not {digits}")
    return round(number, digits)


def total(values: Iterable[Any]) -> float:
    numbers = list(values)
    if not all(isinstance(number, int | float) for number in numbers):
        raise TypeError("only numbers can be summed up")
    return sum(numbers)


def from_json(text: str) -> Json:
    value: Json = json.loads(text)
    return value


def to_json(value: Any) -> str:  # noqa: ANN401 - whatever an expression makes
    return encode(plain(value)).decode()


def text_of(value: object) -> str:
    """A value as it stands in text. Only single values can: a list in the middle of a text is a mistake."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"{_kind(value)} can't be put into text: use a single value, or the filter tojson")


def _kind(value: object) -> str:
    return "nothing (null)" if value is None else f"a {type(value).__name__}"


def plain(value: Any) -> Json:  # noqa: ANN401 - likewise
    """What an expression made, as JSON: what gives values one after the other is a list."""
    return _Plain().of(value)


class _Plain:
    """Makes JSON of a value. Counts all of it: a list may hold the same large thing many times."""

    def __init__(self) -> None:
        self._size = 0

    def of(self, value: Any) -> Json:  # noqa: ANN401 - likewise
        self._size += VALUE_SIZE + (len(value) if isinstance(value, str) else 0)
        bounded(self._size)
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, Undefined):
            # Raises what says that it is not there.
            str(value)
        if isinstance(value, Mapping):
            return {_key(key): self.of(one) for key, one in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, Iterable):
            return [self.of(one) for one in cast("Iterable[Any]", value)]
        raise TypeError(f"it is a {type(cast('object', value)).__name__}, which is not JSON")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} is not text")
    return key


class Missing(StrictUndefined):
    """Something that is not there: whoever uses it is told so."""

    @property
    def _undefined_message(self) -> str:
        name, owner = self._undefined_name, self._undefined_obj
        if isinstance(owner, Mapping):
            keys = [str(key) for key in cast("Mapping[Any, Any]", owner)]
            there = ", ".join(keys[:10]) + (", …" if len(keys) > 10 else "") if keys else "nothing"
            return f"there is no {name!r}: there is {there}"
        if owner is None or isinstance(owner, bool | int | float | str | list):
            return f"there is no {name!r} in {_kind(cast('object', owner))}"
        return f"there is no {name!r}"

    __slots__ = ()


class Sandbox(ImmutableSandboxedEnvironment):
    """Where expressions are compiled and run."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self) -> None:
        super().__init__(undefined=Missing, autoescape=False, keep_trailing_newline=True, cache_size=0)
        own = {
            "join": join,
            "replace": replace,
            "round": rounded,
            "string": text_of,
            "sum": total,
            "tojson": to_json,
            "fromjson": from_json,
        }
        self.filters = {name: FILTERS[name] for name in FROM_JINJA} | own
        self.globals = {"range": self.globals["range"]}

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - whatever an expression has at hand; likewise below
        """What `obj.attribute` is. Data first: an object may well have a key `items`."""
        if isinstance(obj, Mapping) and attribute in obj:
            return cast("Mapping[str, Any]", obj)[attribute]
        for kind, methods in METHODS.items():
            if isinstance(obj, kind) and attribute in methods:
                return getattr(cast("object", obj), attribute)
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401
        """What `obj[argument]` is: never an attribute."""
        try:
            return obj[argument]
        except (LookupError, TypeError):
            return self.undefined(obj=obj, name=argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        check = {"*": _check_product, "**": _check_power, "%": _check_remainder, "+": _check_sum}[operator]
        check(left, right)
        return super().call_binop(context, operator, left, right)


def _check_product(left: object, right: object) -> None:
    for many, times in ((left, right), (right, left)):
        if isinstance(many, Sequence) and isinstance(times, int):
            bounded(len(cast("Sequence[Any]", many)) * max(times, 0))
    _check_bits(left, right)


def _check_power(left: object, right: object) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > BITS_LIMIT:
        raise SecurityError(f"{left} ** {right} is too large a number")


def _check_remainder(left: object, _: object) -> None:
    if isinstance(left, str):
        raise SecurityError("% does not put values into text: write the text with {{ … }} in it")


def _check_sum(left: object, right: object) -> None:
    _check_bits(left, right)
    if isinstance(left, str | list) and isinstance(right, str | list):
        bounded(len(cast("Sequence[Any]", left)) + len(cast("Sequence[Any]", right)))


def _check_bits(left: object, right: object) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > BITS_LIMIT:
        raise SecurityError("this would be too large a number")
