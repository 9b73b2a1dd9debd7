"""Define the policy by which calls of one tool become tasks, and when a repeated call joins an existing task.

A host that times out on a call, and makes the same call again, is joined to its task. That happens only where the
author declares that the tool is idempotent: then the key is derived from the arguments. The key is free again as soon
as a caller has retrieved the result, so that a later call runs again.
"""

import hashlib
import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, cast, get_args

from raincheck.core.change import digest_request
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.records import Task
from raincheck.core.values import Json
from raincheck.engine.settings import MAX_TIMEOUT, check_seconds
from raincheck.engine.tool import ToolSettings
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.wire.fields import IDEMPOTENCY_META_KEY

ARGUMENTS_KEY_PREFIX = "the same call as "
"""Prefix of the keys that are derived from arguments."""

JOIN_WINDOW = timedelta(minutes=10)
"""Time after its end in which a task with an unretrieved result is returned to the same call."""


def arguments_key(tool: str, arguments: Mapping[str, Json]) -> str:
    """Return the key of a call that only its arguments distinguish from other calls of its owner."""
    return ARGUMENTS_KEY_PREFIX + digest_request(tool, arguments)


def is_joined_by_arguments(task: Task) -> bool:
    return task.idempotency_key is not None and task.idempotency_key.startswith(ARGUMENTS_KEY_PREFIX)


def is_stale(task: Task, now: datetime) -> bool:
    """Return whether the task of an earlier, identical call is of no use to a call that is made now."""
    if task.finished_at is None or not is_joined_by_arguments(task):
        return False
    return task.phase is Phase.CANCELLED or now - task.finished_at > JOIN_WINDOW


Mode: TypeAlias = Literal["auto", "required", "forbidden"]

IdempotencyKey: TypeAlias = str | Callable[[Mapping[str, Json]], str | None]
"""The name of an argument, or a function of all arguments; None where a call has no key."""

MAX_KEY_LENGTH = 200

MAX_INLINE_WAIT = 45.0
"""Seconds. Hosts time out after about a minute."""


class ServedToolSettings(ToolSettings, total=False):
    """Settings of a served tool. `TaskPolicy` and `TaskTool` document the defaults and the meanings."""

    mode: Mode
    inline_for: float | None
    expected: float | None
    idempotency: IdempotencyKey | None
    immediate_response: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPolicy:
    """The policy by which calls of one tool become tasks. Under any policy, each call runs as a durable task."""

    mode: Mode = "auto"
    """Which callers get a task.

    `"auto"`: a call becomes a task where that is worth it, by how long calls of this tool take, and every caller is
    served: one that can't accept a task waits, and then receives text on how to continue. `"required"`: only for
    callers that accept tasks. `"forbidden"`: every caller waits for the result.
    """
    inline_for: float | None = None
    """Seconds in which a call that ends is answered with its result, and its caller never sees a task.

    None: chosen to suit the measured durations.
    """
    expected: float | None = None
    """Seconds that a call is expected to take, until there are measurements."""
    idempotency: IdempotencyKey | None = None
    """The key by which two calls of one owner are the same: a repeated call gets the task of the first."""

    immediate_response: str | None = None
    """Text for the model of a 2025-11-25 host while there is no result yet; a short default sentence if None."""

    def __post_init__(self) -> None:
        text = cast("object", self.immediate_response)  # not every caller is type-checked
        if text is not None and not (isinstance(text, str) and text.strip()):
            raise ConfigurationError(
                f"immediate_response is a text for a model to read, not {self.immediate_response!r}"
            )
        if self.mode not in get_args(Mode):
            raise ConfigurationError(f'mode is "auto", "required" or "forbidden", not {self.mode!r}')
        if self.inline_for is not None:
            check_seconds("inline_for", self.inline_for, minimum=0, maximum=MAX_INLINE_WAIT)
        if self.expected is not None:
            check_seconds("expected", self.expected, minimum=0, maximum=MAX_TIMEOUT)
        if self.idempotency is not None and not isinstance(self.idempotency, str) and not callable(self.idempotency):
            raise ConfigurationError(
                f"idempotency is the name of an argument or a function of the arguments, not {self.idempotency!r}"
            )

    @property
    def task_support(self) -> str:
        """The mode as the `taskSupport` value of 2025-11-25."""
        return "optional" if self.mode == "auto" else self.mode

    def idempotency_key(
        self, tool: str, arguments: Mapping[str, Json], meta: Mapping[str, Any] | None, owner: Owner
    ) -> str | None:
        """Return the key that identifies this call among those of its owner, or None. A caller's own key comes first.

        An owner that can't be distinguished from others gets no derived key, because equal orders of two unknown
        callers are two orders.

        Raises:
            InvalidValue: there should be a key, and it is not a string.
        """
        if meta is not None and IDEMPOTENCY_META_KEY in meta:
            key = _require_text(meta[IDEMPOTENCY_META_KEY], f"`_meta[{IDEMPOTENCY_META_KEY!r}]`")
            # It is never taken for a derived one.
            return f"a caller's: {key}" if key.startswith(ARGUMENTS_KEY_PREFIX) else key
        if self.idempotency is None or not owner.may_list:
            return None
        if callable(self.idempotency):
            key = self.idempotency(arguments)
            if key is not None:
                key = _require_text(key, f"the idempotency key that tool {tool!r} makes of its arguments")
        else:
            value = arguments.get(self.idempotency)
            key = None if value is None else f"{self.idempotency}={json.dumps(value, sort_keys=True)}"
        # Two tools may have arguments of the same name.
        return None if key is None else _shortened(f"{tool}: {key}")


def check_idempotency(tool: str, setting: IdempotencyKey | None, arguments: Container[str]) -> None:
    """Reject a setting that names no argument of the tool."""
    if isinstance(setting, str) and setting not in arguments:
        raise ConfigurationError(
            f"tool {tool!r} has no argument {setting!r}, which its idempotency setting names: name one of its arguments"
        )


def _shortened(key: str) -> str:
    """Return a short key unchanged, to stay readable, and a long key as its hash, to fit into the store."""
    return key if len(key) <= MAX_KEY_LENGTH else hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _require_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{name} is a text, not {type(value).__name__}")
    return value
