"""Jinja2's expressions, and of what they can do only what ends soon and touches nothing but JSON.

The author of a file is trusted with its commands, but values come from callers: no value may make an expression take
all the memory, run for ever, or reach what is behind an object. So functions, filters and methods are few, named here,
and those that can make much out of little are bounded.

What one expression may read and make in all while it is worked out.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from jinja2 import StrictUndefined, Undefined, pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS, do_int
from jinja2.nodes import EvalContext
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from raincheck.core.payload import Json, encode

TEXT_LIMIT = 8_000_000
BITS_LIMIT = 4_096
WORK_LIMIT = 32_000_000
"""Characters and values: several times what an expression may be in the end."""
VALUE_SIZE = 8
"""What a value of a list or an object counts for, besides its text."""
CALL_SIZE = 40
"""What each use of a filter or a test counts for: `map` has one for each value."""


def bounded(size: int) -> None:
    if size > TEXT_LIMIT:
        raise SecurityError(f"it would make something of {size:,} characters or items: {TEXT_LIMIT:,} are allowed")


class Measured(Context):
    """Where an expression is worked out. Each bounded operation may be small, and all of them together large."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as Jinja makes it
        super().__init__(*args, **kwargs)
        self._left = WORK_LIMIT

    def spend(self, size: int) -> None:
        """Take note of something that is read or made.

        Raises:
            SecurityError: it is too much with all that was before.
        """
        self._left -= size
        if self._left < 0:
            raise SecurityError(f"it would take more than {WORK_LIMIT:,} characters and items to work this out")


def spend(context: Context | None, size: int) -> None:
    if isinstance(context, Measured):
        context.spend(size)


def size_of(value: object) -> int:
    """How much was made: itself, and not what its values have in them, which was there before."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple | dict):
        return VALUE_SIZE * len(cast("list[Any]", value))
    return 1


def length_of(value: object) -> int:
    """How much there is to look at."""
    return len(cast("list[Any]", value)) if isinstance(value, str | list | tuple | dict) else 1


def metered(function: Callable[..., Any], weight: int = 1) -> Callable[..., Any]:
    """A filter that draws what it reads and makes from what the expression has left.

    The weight is that of a character of its text: filters that take one after the other take longer.
    """
    wants: str | None = getattr(getattr(function, "jinja_pass_arg", None), "name", None)

    def measure(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever it is for
        first = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        passed = () if wants is None else (first[wants],)
        spend(context, CALL_SIZE + (len(value) * weight if isinstance(value, str) else 0))
        made = function(*passed, _read(context, value), *args, **kwargs)
        spend(context, size_of(made))
        return made

    return pass_context(measure)


def _read(context: Context, value: Any) -> Any:  # noqa: ANN401 - likewise
    """A value, when all in it is counted: at once, or one after the other where that is how it comes."""
    if isinstance(value, list | tuple):
        spend(context, sum(map(_length, cast("list[Any]", value))))
    elif isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        spend(context, sum(_length(key) + _length(one) for key, one in pairs))
    elif isinstance(value, Iterator):
        return _counted(context, cast("Iterator[Any]", value))
    return cast("Any", value)


def _counted(context: Context, values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        spend(context, _length(value))
        yield value


def _length(value: object) -> int:
    return VALUE_SIZE + (len(value) if isinstance(value, str) else 0)


def check_operation(operator: str, left: object, right: object) -> None:
    """Refuse what would make much out of little.

    Raises:
        SecurityError: it would.
    """
    check = {"*": _check_product, "**": _check_power, "%": _check_remainder, "+": _check_sum}
    check.get(operator, _check_bits)(left, right)


def _check_product(left: object, right: object) -> None:
    for many, times in ((left, right), (right, left)):
        if isinstance(many, Sequence) and isinstance(times, int):
            bounded(len(cast("Sequence[Any]", many)) * max(times, 0))
    _check_bits(left, right)


def _check_power(left: object, right: object) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > BITS_LIMIT:
        raise SecurityError(f"{left} ** {right} is too large a number")


def _check_remainder(left: object, right: object) -> None:
    _check_bits(left, right)
    if isinstance(left, str):
        raise SecurityError("% does not put values into text: write the text with {{ … }} in it")


def _check_sum(left: object, right: object) -> None:
    _check_bits(left, right)
    if isinstance(left, str | list) and isinstance(right, str | list):
        bounded(len(cast("Sequence[Any]", left)) + len(cast("Sequence[Any]", right)))


def _check_bits(left: object, right: object) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > BITS_LIMIT:
        raise SecurityError("this would be too large a number")


DIGITS_LIMIT = 1_000
"""Of a text that is made a number."""

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
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "items", "last", "length",
    "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "title",
    "trim", "unique", "upper",
)  # fmt: skip
"""Filters that make nothing large out of something small."""
WALKING = frozenset({"join", "list", "map", "max", "min", "reject", "select", "sort", "sum", "unique"})
"""Filters that take a text character by character."""


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


def integer(value: Any, default: int = 0, base: int = 10) -> Any:  # noqa: ANN401 - whatever an expression has at hand
    if not 2 <= base <= 16:
        raise SecurityError(f"a number is read to a base of 2 to 16, not {base}")
    if isinstance(value, str) and len(value) > DIGITS_LIMIT:
        raise SecurityError(f"a number is read of at most {DIGITS_LIMIT:,} characters, not {len(value):,}")
    return do_int(value, default, base)


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

    intercepted_binops = frozenset({"*", "**", "%", "+", "-", "/", "//"})
    context_class = Measured

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
            "int": integer,
        }
        allowed = {name: FILTERS[name] for name in FROM_JINJA} | own
        self.filters = {
            name: metered(function, VALUE_SIZE if name in WALKING else 1) for name, function in allowed.items()
        }
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
        check_operation(operator, left, right)
        made = super().call_binop(context, operator, left, right)
        spend(context, size_of(made))
        return made

    def call_test(  # as Jinja has it
        self,
        name: str,
        value: Any,  # noqa: ANN401
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        context: Context | None = None,
        eval_ctx: EvalContext | None = None,
    ) -> Any:  # noqa: ANN401
        """For each value that `select` and the like look at: what is compared may be large each time."""
        spend(context, CALL_SIZE + length_of(value) + sum(map(length_of, args or ())))
        return super().call_test(name, value, args, kwargs, context, eval_ctx)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        made = super().call(context, function, *args, **kwargs)
        spend(context, size_of(made))
        return made
