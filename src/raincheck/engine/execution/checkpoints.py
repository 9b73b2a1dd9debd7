"""Checkpoints of a task: what earlier attempts recorded, matched by name and by number of uses of the name.

Pure. Checkpoints of all kinds are numbered by the same count, so no two ever share a name and a number.

A fingerprint identifies the arguments of a step without storing them.
"""

import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from raincheck.core.records import InputKind, InputRequest, Journal, Step, Task
from raincheck.core.values import Json, decode
from raincheck.errors import CheckpointMismatch, InvalidValue


def fingerprint(kind: str, *parts: object) -> str:
    """Return the kind of a checkpoint and a digest of its arguments.

    A value that is not JSON (an open connection, say) counts by its type alone: it is a different object in another
    attempt.
    """
    try:
        text = _to_text([_with_text_keys(part) if part else part for part in parts])
    except RecursionError:
        # Too deeply nested, or recursive: not JSON either.
        text = " ".join(type(part).__qualname__ for part in parts)
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _type_label(value: object) -> str:
    return f"<{type(value).__qualname__}>"


_to_text = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_type_label).encode


def _with_text_keys(value: Any) -> object:  # noqa: ANN401 - any list, tuple or mapping
    """Return the value with the keys of its mappings as text, as they are written."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in cast("dict[Any, Any]", value).items()}
    if not isinstance(value, list | tuple):
        return value
    # Not called for every argument: most are numbers or text.
    items = cast("list[Any]", value)
    return [_with_text_keys(item) if isinstance(item, dict | list | tuple) else item for item in items]


def not_callable_error(name: str, fn: object) -> InvalidValue:
    """Return the error for a step whose function can't be called. Most likely, it was called instead of passed."""
    if inspect.iscoroutine(fn):
        fn.close()
    return InvalidValue(f"step {name!r} takes a function and its arguments, as in step({name!r}, load, year)")


REMEDY = (
    "give the tool a new version when its steps change, and make its steps depend only on its arguments and its "
    "checkpoints"
)

CHILD_KEY_PREFIX = "child:"
"""Key prefix of input requests relayed from children. They are not checkpoints of the body, which did not make them."""


class Checkpoints:
    """The recorded checkpoints of a task, and which of them this attempt has replayed."""

    def __init__(self, journal: Journal, version: str) -> None:
        self._task = journal.task
        self._version = version
        self._uses: Counter[str] = Counter()
        self.steps: dict[tuple[str, int], Step] = {(step.name, step.occurrence): step for step in journal.steps}
        """The recorded steps, by name and number of use."""
        self._inputs: dict[str, InputRequest] = {input_request.key: input_request for input_request in journal.inputs}
        self._unreplayed_steps = set(self.steps)
        self._unreplayed_inputs = {key for key in self._inputs if not key.startswith(CHILD_KEY_PREFIX)}
        self.scope = ""
        """The start of the names of checkpoints in the current part of the body."""

    def enter_scope(self, scope: str) -> None:
        """Enter a part of the body whose checkpoints have separate names. The checkpoints of other parts are finished.

        Unlike other bodies, the body of a workflow instance is not replayed from its beginning by each attempt.
        """
        if scope == self.scope:
            return
        self.scope = scope
        self._uses.clear()
        self.steps = {key: step for key, step in self.steps.items() if step.name.startswith(scope)}
        self._inputs = {key: input_request for key, input_request in self._inputs.items() if key.startswith(scope)}
        self._unreplayed_steps &= self.steps.keys()
        self._unreplayed_inputs &= self._inputs.keys()

    @property
    def is_replaying(self) -> bool:
        """Return whether there are recorded checkpoints that this attempt has not reached yet."""
        return bool(self._unreplayed_steps or self._unreplayed_inputs)

    def count(self, kind: str) -> int:
        """Count the recorded steps of a kind."""
        return sum(step.fingerprint.startswith(f"{kind}:") for step in self.steps.values())

    def next_occurrence(self, name: str) -> int:
        """Return the number of this use of the name."""
        number = self._uses[name]
        self._uses[name] += 1
        return number

    def next_step(self, name: str, fingerprint: str) -> tuple[str, int, Step | None]:
        """Return the step's name in the current scope, the number of this use of it, and the step if it is recorded.

        Raises:
            CheckpointMismatch: it was recorded with a different fingerprint.
        """
        name = f"{self.scope}{name}"
        occurrence = self._uses[name]
        self._uses[name] += 1
        step = self.steps.get((name, occurrence))
        if step is not None:
            self._unreplayed_steps.discard((name, occurrence))
            if step.fingerprint != fingerprint:
                self._raise_mismatch(_named(name, occurrence), step.attempt, step.fingerprint, fingerprint)
        return name, occurrence, step

    def has_step(self, name: str) -> bool:
        """Return whether a step of this name, with any arguments, is recorded in the current scope."""
        return (f"{self.scope}{name}", 0) in self.steps

    def find_input(self, key: str, kind: InputKind, request: Json) -> InputRequest | None:
        """Return the input request as it was recorded.

        Raises:
            CheckpointMismatch: a different request was made under that key.
        """
        input_request = self._inputs.get(key)
        if input_request is not None:
            self._unreplayed_inputs.discard(key)
            if input_request.kind is not kind or decode(input_request.request) != request:
                self._raise_mismatch(
                    f"question {key!r}", input_request.attempt, f"another {input_request.kind}", f"this {kind}"
                )
        return input_request

    def ignore_unreplayed(self) -> None:
        """Drop the checkpoints that were not replayed: the body takes another path, which does not need them."""
        self._unreplayed_steps.clear()
        self._unreplayed_inputs.clear()

    def check_all_replayed(self) -> None:
        """Check at the end of the body that every recorded checkpoint was replayed.

        Raises:
            CheckpointMismatch: one was not, so this is not the body that recorded it.
        """
        missing = list(self._missing())
        if missing:
            raise CheckpointMismatch(
                self._task.id,
                f"task {self._task.id!r} has {', '.join(missing)} on record, but {self._attempt_label()} ended without "
                f"reaching it: {REMEDY}",
            )

    def _missing(self) -> Iterator[str]:
        for name, occurrence in sorted(self._unreplayed_steps):
            step = self.steps[name, occurrence]
            yield f"{_named(name, occurrence)} ({step.fingerprint}, by attempt {step.attempt})"
        for key in sorted(self._unreplayed_inputs):
            yield f"question {key!r} (by attempt {self._inputs[key].attempt})"

    def _raise_mismatch(self, checkpoint: str, attempt: int, recorded: str, requested: str) -> None:
        raise CheckpointMismatch(
            self._task.id,
            f"task {self._task.id!r} has {checkpoint} on record from attempt {attempt} as {recorded}, but "
            f"{self._attempt_label()} requested it as {requested}, with other arguments or as another kind of "
            f"checkpoint: {REMEDY}",
        )

    def _attempt_label(self) -> str:
        task: Task = self._task
        started = "" if self._version == task.tool.version else f", started under version {task.tool.version!r}"
        return f"attempt {task.attempt_number} (tool {task.tool.name!r} in version {self._version!r}{started})"


def _named(name: str, occurrence: int) -> str:
    return f"step {name!r}" if occurrence == 0 else f"step {name!r} (use {occurrence + 1})"
