"""Functions that the attacked workflows call."""

import os
from typing import Any


def same(value: Any) -> Any:
    return value


def fail(value: Any) -> Any:
    raise RuntimeError(f"{os.environ['PLANTED_SECRET']}: {value!r}")
