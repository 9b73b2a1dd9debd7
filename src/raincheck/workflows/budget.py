"""What one expression may read and make in all while it is worked out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from jinja2 import pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context

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
