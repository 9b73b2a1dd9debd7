"""The checkpoints of a task, as one attempt finds them again: by name, and by how often that name was used.

Pure. Every checkpoint of whatever kind takes its number from the same count, so no two ever share a name and a
number.

What can be a step, and what tells its arguments from others without keeping them.
"""

import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from raincheck.core.payload import Json, decode
from raincheck.core.records import InputKind, InputRequest, Journal, Step, Task
from raincheck.errors import CheckpointMismatch, InvalidValue


def fingerprint(kind: str, *parts: object) -> str:
    """The kind of a checkpoint, and a digest of what it was asked for with.

    What is not JSON (an open connection, say) counts by its type alone: it is not the same object in another attempt.
    """
    try:
        text = json.dumps(_plain(parts), sort_keys=True, separators=(",", ":"))
    except RecursionError:
        # Deep, or part of itself: not JSON either.
        text = " ".join(type(part).__qualname__ for part in parts)
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _plain(value: Any) -> object:  # noqa: ANN401 - anything that can be an argument
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("list[Any]", value)]
    return f"<{type(value).__qualname__}>"


def check_step(name: str, fn: object, *, may_await: bool) -> None:
    """Refuse what can't be called as a step.

    Raises:
        InvalidValue: it says what to do.
    """
    if not callable(fn):
        if inspect.iscoroutine(fn):
            fn.close()
        raise InvalidValue(f"step {name!r} takes a function and its arguments, as in step({name!r}, load, year)")
    if not may_await and inspect.iscoroutinefunction(fn):
        raise InvalidValue(f"step {name!r} is a coroutine, and its tool a plain function: make one of them the other")


RELAYED = "child:"
"""How the keys of questions begin that children ask. They are no checkpoints of the body: it did not ask them."""


class Checkpoints:
    """What earlier attempts recorded, and what of it this one has asked for so far."""

    def __init__(self, journal: Journal, version: str) -> None:
        self._task = journal.task
        self._version = version
        self._uses: Counter[str] = Counter()
        self._steps: dict[tuple[str, int], Step] = {(step.name, step.occurrence): step for step in journal.steps}
        self._questions: dict[str, InputRequest] = {question.key: question for question in journal.inputs}
        self._unasked_steps = set(self._steps)
        self._unasked_questions = {key for key in self._questions if not key.startswith(RELAYED)}
        self._scope = ""

    def enter(self, scope: str) -> None:
        """Begin a part of the body whose checkpoints have names of their own: those of other parts are over and done.

        A process is not gone through from its beginning by each attempt, as other bodies are.
        """
        if scope == self._scope:
            return
        self._scope = scope
        self._uses.clear()
        self._steps = {key: step for key, step in self._steps.items() if step.name.startswith(scope)}
        self._questions = {key: one for key, one in self._questions.items() if key.startswith(scope)}
        self._unasked_steps &= self._steps.keys()
        self._unasked_questions &= self._questions.keys()

    def scoped(self, name: str) -> str:
        """The name of a checkpoint in the part that the body is in."""
        return f"{self._scope}{name}"

    @property
    def steps(self) -> int:
        """How many are recorded."""
        return len(self._steps)

    @property
    def is_replaying(self) -> bool:
        """Whether there is more on record that this attempt has not asked for yet."""
        return bool(self._unasked_steps or self._unasked_questions)

    def count(self, kind: str) -> int:
        """How many of a kind are recorded."""
        return sum(step.fingerprint.startswith(f"{kind}:") for step in self._steps.values())

    def take(self, name: str) -> int:
        """The number of this use of the name."""
        number = self._uses[name]
        self._uses[name] += 1
        return number

    def find_step(self, name: str, occurrence: int, fingerprint: str) -> Step | None:
        """The step as it was recorded.

        Raises:
            CheckpointMismatch: it was recorded for something else.
        """
        step = self._steps.get((name, occurrence))
        if step is not None:
            self._unasked_steps.discard((name, occurrence))
            if step.fingerprint != fingerprint:
                self._refuse(_named(name, occurrence), step.attempt, step.fingerprint, fingerprint)
        return step

    def add_step(self, step: Step) -> None:
        self._steps[step.name, step.occurrence] = step

    def find_question(self, key: str, kind: InputKind, request: Json) -> InputRequest | None:
        """The question as it was asked.

        Raises:
            CheckpointMismatch: something else was asked under that key.
        """
        question = self._questions.get(key)
        if question is not None:
            self._unasked_questions.discard(key)
            if question.kind is not kind or decode(question.request) != request:
                self._refuse(f"question {key!r}", question.attempt, f"another {question.kind}", f"this {kind}")
        return question

    def leave_rest(self) -> None:
        """What was not asked for by now will not be: the body goes another way, on which it is not needed."""
        self._unasked_steps.clear()
        self._unasked_questions.clear()

    def check_all_were_asked_for(self) -> None:
        """At the end of the body: everything that was recorded must have been asked for again.

        Raises:
            CheckpointMismatch: some was not, so this is not the body that recorded it.
        """
        missing = list(self._missing())
        if missing:
            raise CheckpointMismatch(
                self._task.id,
                f"task {self._task.id!r} has {', '.join(missing)} on record, and {self._who()} ended without asking "
                f"for it: give a tool whose steps change a new version, or let what it does depend on nothing but its "
                f"arguments and its checkpoints",
            )

    def _missing(self) -> Iterator[str]:
        for name, occurrence in sorted(self._unasked_steps):
            step = self._steps[name, occurrence]
            yield f"{_named(name, occurrence)} ({step.fingerprint}, by attempt {step.attempt})"
        for key in sorted(self._unasked_questions):
            yield f"question {key!r} (by attempt {self._questions[key].attempt})"

    def _refuse(self, what: str, attempt: int, recorded: str, asked: str) -> None:
        raise CheckpointMismatch(
            self._task.id,
            f"task {self._task.id!r} has {what} on record from attempt {attempt} as {recorded}, and {self._who()} asks "
            f"for it as {asked}: its arguments are others, or it is another kind of checkpoint. Give a tool whose "
            f"steps change a new version, or let what it does depend on nothing but its arguments and its checkpoints",
        )

    def _who(self) -> str:
        task: Task = self._task
        began = "" if self._version == task.tool.version else f", begun under version {task.tool.version!r}"
        return f"attempt {task.fence} (tool {task.tool.name!r} in version {self._version!r}{began})"


def _named(name: str, occurrence: int) -> str:
    return f"step {name!r}" if occurrence == 0 else f"step {name!r} (use {occurrence + 1})"
