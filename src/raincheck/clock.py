"""What time it is, and new ids: the two things that pure code has to be given."""

import secrets
from datetime import UTC, datetime
from typing import Protocol

from raincheck.core.records import TaskId


class Clock(Protocol):
    """Something that knows what time it is, in UTC."""

    def now(self) -> datetime: ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def new_task_id() -> TaskId:
    """An id that nobody can guess: 128 random bits, in characters that headers, URLs and models copy safely."""
    return TaskId(secrets.token_hex(16))
