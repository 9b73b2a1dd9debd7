"""Durations and sizes as people write them."""

import math
import re

from raincheck.errors import InvalidValue

LONGEST = 366 * 24 * 3600.0

_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZES = {"": 1, "b": 1, "kb": 1_024, "mb": 1_024**2, "gb": 1_024**3}

_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([smhd]?)")
_SIZE = re.compile(r"([0-9]{1,12})\s*([kmg]?b|)", re.IGNORECASE)


def seconds(value: str | float) -> float:
    """The seconds of a duration: `30s`, `5m`, `2h`, `1d`, or a number of seconds.

    Raises:
        InvalidValue: it is none, or longer than a year.
    """
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None:
        amount = float(found[1]) * _UNITS[found[2] or "s"]
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        amount = float(value)
    else:
        raise InvalidValue(f"a duration is written like 30s, 5m, 2h or 1d, or as a number of seconds, not {value!r}")
    if not 0 <= amount <= LONGEST:
        raise InvalidValue(f"a duration is from 0 to 366 days, not {value!r}")
    return amount


def size(value: str | int) -> int:
    """The bytes of a size: `500KB`, `1MB`, `2GB`, or a number of bytes. A KB is 1,024 bytes.

    Raises:
        InvalidValue: it is none.
    """
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None:
        return int(found[1]) * _SIZES[found[2].lower()]
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise InvalidValue(f"a size is written like 500KB or 1MB, or as a number of bytes, not {value!r}")
