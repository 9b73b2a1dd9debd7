"""How the calls of one tool become tasks.

Calls that are made again. A host that gave up on a call, and makes the same one again, is joined to its task.

Only where the author says that doing it twice is no more than doing it once: then the key is made of the arguments. It
is free again as soon as somebody has the result, so that whoever asks later has it done anew.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

from raincheck.core.create import digest_request
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.records import Task
from raincheck.engine.settings import LONGEST_TIMEOUT, check_seconds
from raincheck.engine.tool import ToolSettings
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.wire.results import KEY_IN_META

SAME = "the same call as "
"""Begins the keys that are made of arguments."""

JOINED_WITHIN = timedelta(minutes=10)
"""For how long after its end a task whose result nobody has had is what the same call gets."""


def key_of(tool: str, arguments: Mapping[str, Json]) -> str:
    """What tells a call from others of the same owner, where only its arguments do."""
    return SAME + digest_request(tool, arguments)


def theirs(key: str) -> str:
    """A caller's own key, which is never taken for one of these."""
    return f"a caller's: {key}" if key.startswith(SAME) else key


def is_joined_by_arguments(task: Task) -> bool:
    return task.idempotency_key is not None and task.idempotency_key.startswith(SAME)


def is_of_no_use(task: Task, now: datetime) -> bool:
    """Whether a call that is made now wants nothing of the task that the same call began before."""
    if task.finished_at is None or not is_joined_by_arguments(task):
        return False
    return task.phase is Phase.CANCELLED or now - task.finished_at > JOINED_WITHIN


Mode: TypeAlias = Literal["auto", "required", "forbidden"]

IdempotencyKey: TypeAlias = str | Callable[[Mapping[str, Json]], str | None]
"""The name of an argument, or a function of all arguments; None where a call has no key."""

LONGEST_KEY = 200

LONGEST_INLINE = 45.0
"""Seconds: hosts give up after about a minute."""


class ServedSettings(ToolSettings, total=False):
    """What can be said of a tool that is served. `TaskPolicy` and `TaskTool` have the defaults and the meanings."""

    mode: Mode
    inline_for: float | None
    expected: float | None
    idempotency: IdempotencyKey | None
    meanwhile: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPolicy:
    """How the calls of one tool become tasks. Whatever it says, each of them runs as one, and survives a crash."""

    mode: Mode = "auto"
    """`"auto"`: a call becomes a task where that is worth it, by how long calls of this tool take, and every caller is
    served: one that can't take a task waits, and is told how to go on. `"required"`: only for callers that can take a
    task. `"forbidden"`: everybody waits for the result."""
    inline_for: float | None = None
    """Seconds in which a call that ends is answered with its result, and its caller never sees a task. None: what suits
    the durations that were measured."""
    expected: float | None = None
    """Seconds that a call takes, for as long as there are no measurements."""
    idempotency: IdempotencyKey | None = None
    """What makes two calls of one owner the same: a repeated one gets the first one's task."""

    meanwhile: str | None = None
    """What the model of a 2025-11-25 host may read while there is no result yet; a short sentence of ours if None."""

    def __post_init__(self) -> None:
        if self.meanwhile is not None and (not isinstance(self.meanwhile, str) or not self.meanwhile.strip()):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
            raise ConfigurationError(f"meanwhile is a sentence for a model to read, not {self.meanwhile!r}")
        if self.mode not in get_args(Mode):
            raise ConfigurationError(f'mode is "auto", "required" or "forbidden", not {self.mode!r}')
        if self.inline_for is not None:
            check_seconds("inline_for", self.inline_for, least=0, most=LONGEST_INLINE)
        if self.expected is not None:
            check_seconds("expected", self.expected, least=0, most=LONGEST_TIMEOUT)
        if self.idempotency is not None and not isinstance(self.idempotency, str) and not callable(self.idempotency):
            raise ConfigurationError(
                f"idempotency is the name of an argument or a function of the arguments, not {self.idempotency!r}"
            )

    @property
    def task_support(self) -> str:
        """The word of 2025-11-25 for the mode."""
        return "optional" if self.mode == "auto" else self.mode

    def key_of(
        self, tool: str, arguments: Mapping[str, Json], meta: Mapping[str, Any] | None, owner: Owner
    ) -> str | None:
        """What tells this call from others of the same owner; None if nothing does. A caller's own key goes first.

        An owner who can't be told from others has none: two strangers who order the same are two.

        Raises:
            InvalidValue: there should be one, and it is no text.
        """
        if meta is not None and KEY_IN_META in meta:
            return theirs(_text(meta[KEY_IN_META], f"`_meta[{KEY_IN_META!r}]`"))
        if self.idempotency is None or not owner.may_list:
            return None
        if callable(self.idempotency):
            key = self.idempotency(arguments)
            if key is not None:
                key = _text(key, f"the idempotency key that tool {tool!r} makes of its arguments")
        else:
            value = arguments.get(self.idempotency)
            key = None if value is None else f"{self.idempotency}={json.dumps(value, sort_keys=True)}"
        # Two tools may have arguments of the same name.
        return None if key is None else _shortened(f"{tool}: {key}")


def _shortened(key: str) -> str:
    """A key that can be read if it is short, and kept if it is long."""
    return key if len(key) <= LONGEST_KEY else hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{what} is a text, not {type(value).__name__}")
    return value
