"""Jinja2 expressions in a sandbox that allows only operations that end soon and touch nothing but JSON.

The author of a file is trusted with its commands, but values come from callers: no value may make an expression exhaust
the memory, run forever, or reach what is behind an object. So only the few functions, filters and methods named here
are allowed, and those that can produce large results from small inputs are bounded. A meter also bounds the total that
one expression may read and produce while it is evaluated.
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

from raincheck.core.values import Json, encode

TEXT_LIMIT = 8_000_000
BITS_LIMIT = 4_096
WORK_LIMIT = 32_000_000
"""Characters and values that one evaluation may use: several times the limit of its result."""
VALUE_SIZE = 8
"""The cost of a value in a list or an object, besides its text."""
CALL_SIZE = 40
"""The cost of each use of a filter or a test: `map` uses one for each value."""


def check_size(size: int) -> None:
    if size > TEXT_LIMIT:
        raise SecurityError(f"its value would have {size:,} characters or items, but only {TEXT_LIMIT:,} are allowed")


class MeteredContext(Context):
    """The context of an evaluation, with a meter: bounded operations may be small each, and large in total."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Jinja's signature
        super().__init__(*args, **kwargs)
        self._left = WORK_LIMIT

    def spend(self, size: int) -> None:
        """Charge for something that is read or produced.

        Raises:
            SecurityError: the total exceeds the limit.
        """
        self._left -= size
        if self._left < 0:
            raise SecurityError(f"evaluating it uses more than {WORK_LIMIT:,} characters and items: simplify it")


def spend(context: Context | None, size: int) -> None:
    if isinstance(context, MeteredContext):
        context.spend(size)


def size_of(value: object) -> int:
    """Return the size of a produced value itself, without the contents of its values, which existed before."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple | dict):
        return VALUE_SIZE * len(cast("list[Any]", value))
    return 1


def length_of(value: object) -> int:
    """Return how much of a value there is to read."""
    return len(cast("list[Any]", value)) if isinstance(value, str | list | tuple | dict) else 1


def meter(function: Callable[..., Any], weight: int = 1) -> Callable[..., Any]:
    """Wrap a filter so that what it reads and produces is charged to the expression.

    `weight` is the cost of a character of its text: filters that take characters one by one are slower.
    """
    pass_arg: str | None = getattr(getattr(function, "jinja_pass_arg", None), "name", None)

    def measure(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any value
        choices = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        passed = () if pass_arg is None else (choices[pass_arg],)
        spend(context, CALL_SIZE + (len(value) * weight if isinstance(value, str) else 0))
        result = function(*passed, _read(context, value), *args, **kwargs)
        spend(context, size_of(result))
        return result

    return pass_context(measure)


def _read(context: Context, value: Any) -> Any:  # noqa: ANN401 - likewise
    """Return a value after charging for its contents: at once, or item by item for an iterator."""
    if isinstance(value, list | tuple):
        spend(context, sum(map(_length, cast("list[Any]", value))))
    elif isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        spend(context, sum(_length(key) + _length(item) for key, item in pairs))
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
    """Refuse an operation that would produce a large result from small operands.

    Raises:
        SecurityError: the operation is refused.
    """
    match operator, left, right:
        case "**", int(base), int(exponent):
            if base.bit_length() * abs(exponent) > BITS_LIMIT:
                raise SecurityError(f"{base} ** {exponent} would be too large a number")
        case _, int(one), int(other):
            if one.bit_length() + other.bit_length() > BITS_LIMIT:
                raise SecurityError("the number would be too large")
        case "*", Sequence(), int(times):
            check_size(len(cast("Sequence[Any]", left)) * max(times, 0))
        case "*", int(times), Sequence():
            check_size(len(cast("Sequence[Any]", right)) * max(times, 0))
        case "+", str() | list(), str() | list():
            check_size(len(cast("Sequence[Any]", left)) + len(cast("Sequence[Any]", right)))
        case "%", str(), _:
            raise SecurityError("% does not format text: write the text with {{ … }} in it")
        case _:
            pass


DIGITS_LIMIT = 1_000
"""Digits of a text that is converted to a number."""

METHODS: Mapping[type, frozenset[str]] = {
    str: frozenset({
        "capitalize", "count", "endswith", "find", "isalnum", "isalpha", "isdigit", "islower", "isspace", "isupper",
        "lower", "lstrip", "removeprefix", "removesuffix", "rfind", "rsplit", "rstrip", "split", "splitlines",
        "startswith", "strip", "title", "upper",
    }),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
}  # fmt: skip

SAFE_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "items", "last", "length",
    "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "title",
    "trim", "unique", "upper",
)  # fmt: skip
"""Filters that produce no large result from a small input."""
PER_CHARACTER_FILTERS = frozenset({"join", "list", "map", "max", "min", "reject", "select", "sort", "sum", "unique"})
"""Filters that take a text character by character."""


def join(values: Iterable[Any], separator: str = "") -> str:
    texts = [text_of(value) for value in values]
    check_size(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def replace(text: str, old: str, new: str) -> str:
    text, old, new = text_of(text), text_of(old), text_of(new)
    check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def rounded(number: float, digits: int = 0) -> float:
    if not -15 <= digits <= 15:
        raise SecurityError(f"a number can be rounded to -15 to 15 digits, not {digits}")
    return round(number, digits)


def integer(value: Any, default: int = 0, base: int = 10) -> Any:  # noqa: ANN401 - any value of an expression
    if not 2 <= base <= 16:
        raise SecurityError(f"the base of a number can be 2 to 16, not {base}")
    if isinstance(value, str) and len(value) > DIGITS_LIMIT:
        raise SecurityError(f"a number can have at most {DIGITS_LIMIT:,} characters, not {len(value):,}")
    return do_int(value, default, base)


def total(values: Iterable[Any]) -> float:
    numbers = list(values)
    if not all(isinstance(number, int | float) for number in numbers):
        raise TypeError("only numbers can be summed up")
    return sum(numbers)


def from_json(text: str) -> Json:
    value: Json = json.loads(text)
    return value


def to_json(value: Any) -> str:  # noqa: ANN401 - any value of an expression
    return encode(to_json_value(value)).decode()


def text_of(value: object) -> str:
    """Return a value as part of a text. Only single values are allowed: a list in the middle of a text is a mistake."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"{_kind(value)} can't be put into text: use a single value, or the filter tojson")


def _kind(value: object) -> str:
    return "nothing (null)" if value is None else f"a {type(value).__name__}"


def to_json_value(value: Any) -> Json:  # noqa: ANN401 - likewise
    """Convert the result of an expression to JSON. An iterator becomes a list.

    All of it counts: a list may contain the same large value many times.
    """
    size = 0

    def convert(value: Any) -> Json:  # noqa: ANN401 - likewise
        nonlocal size
        size += _length(value)
        check_size(size)
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, Undefined):
            # Raises the error that names the missing value.
            str(value)
        if isinstance(value, Mapping):
            return {_key(key): convert(item) for key, item in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, Iterable):
            return [convert(item) for item in cast("Iterable[Any]", value)]
        raise TypeError(f"it is a {type(cast('object', value)).__name__}, which is not JSON")

    return convert(value)


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} is not text")
    return key


class DescriptiveUndefined(StrictUndefined):
    """A missing value. Using it raises an error that names it."""

    @property
    def _undefined_message(self) -> str:
        name, owner = self._undefined_name, self._undefined_obj
        if isinstance(owner, Mapping):
            keys = [str(key) for key in cast("Mapping[Any, Any]", owner)]
            available = ", ".join(keys[:10]) + (", …" if len(keys) > 10 else "") if keys else "none"
            return f"there is no {name!r}: the keys are {available}"
        if owner is None or isinstance(owner, bool | int | float | str | list):
            return f"there is no {name!r} in {_kind(cast('object', owner))}"
        return f"there is no {name!r}"

    __slots__ = ()


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment in which expressions are compiled and run."""

    intercepted_binops = frozenset({"*", "**", "%", "+", "-", "/", "//"})
    context_class = MeteredContext

    def __init__(self) -> None:
        super().__init__(undefined=DescriptiveUndefined, autoescape=False, keep_trailing_newline=True, cache_size=0)
        bounded = {
            "join": join,
            "replace": replace,
            "round": rounded,
            "string": text_of,
            "sum": total,
            "tojson": to_json,
            "fromjson": from_json,
            "int": integer,
        }
        allowed = {name: FILTERS[name] for name in SAFE_FILTERS} | bounded
        self.filters = {
            name: meter(function, VALUE_SIZE if name in PER_CHARACTER_FILTERS else 1)
            for name, function in allowed.items()
        }
        self.globals = {"range": self.globals["range"]}

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - any value of an expression; likewise below
        """Return `obj.attribute`. Data comes first: an object may well have a key `items`."""
        if isinstance(obj, Mapping) and attribute in obj:
            return cast("Mapping[str, Any]", obj)[attribute]
        for kind, methods in METHODS.items():
            if isinstance(obj, kind) and attribute in methods:
                return getattr(cast("object", obj), attribute)
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401
        """Return `obj[argument]`, which is never an attribute."""
        try:
            return obj[argument]
        except (LookupError, TypeError):
            return self.undefined(obj=obj, name=argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        check_operation(operator, left, right)
        result = super().call_binop(context, operator, left, right)
        spend(context, size_of(result))
        return result

    def call_test(  # Jinja's signature
        self,
        name: str,
        value: Any,  # noqa: ANN401
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        context: Context | None = None,
        eval_ctx: EvalContext | None = None,
    ) -> Any:  # noqa: ANN401
        """Charge for each value that a filter such as `select` tests: the compared values may be large each time."""
        spend(context, CALL_SIZE + length_of(value) + sum(map(length_of, args or ())))
        return super().call_test(name, value, args, kwargs, context, eval_ctx)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = super().call(context, function, *args, **kwargs)
        spend(context, size_of(result))
        return result
