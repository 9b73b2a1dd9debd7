"""What every loop of the engine has in common: it goes on, whatever happens."""

from collections.abc import Awaitable, Callable

from raincheck.clock import Clock
from raincheck.errors import StoreError
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)

AFTER_AN_ERROR = 1.0
"""Seconds to wait before the next round."""


async def repeat(
    what: str, do: Callable[[], Awaitable[None]], clock: Clock, *, until: Callable[[], bool] = lambda: False
) -> None:
    """Do it again and again. An error is logged, and does not end it: the store may be back in a moment."""
    while not until():
        try:
            await do()
        except StoreError as error:
            logger.warning("%s: will try again, since %s", what, error)
            await clock.sleep(AFTER_AN_ERROR)
        except Exception:
            logger.exception("%s: an unexpected error; will go on", what)
            await clock.sleep(AFTER_AN_ERROR)
