"""What belongs to a task besides its record: steps, questions, artifacts; and the two ways of reading it all."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from raincheck.core.payload import Payload
from raincheck.core.records import Task


@dataclass(frozen=True, slots=True)
class Step:
    """A finished checkpoint, found again by its name and how often that name was used before it."""

    name: str
    occurrence: int
    fingerprint: str
    """Tells the arguments it was run with from others."""
    result: Payload
    attempt: int
    finished_at: datetime


class InputKind(StrEnum):
    """What is asked of the caller."""

    ELICITATION = "elicitation"
    SAMPLING = "sampling"
    ROOTS = "roots"


@dataclass(frozen=True, slots=True)
class InputRequest:
    """A question to the caller. Its key is unique for the task's life."""

    key: str
    kind: InputKind
    request: Payload
    asked_at: datetime
    attempt: int
    answer: Payload | None = None
    answered_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.answered_at is None


@dataclass(frozen=True, slots=True)
class Artifact:
    """An intermediate result, readable while the task works. Keeping one under the same name replaces it."""

    name: str
    content: Payload
    kept_at: datetime


@dataclass(frozen=True, slots=True)
class View:
    """What answers a poll, read at one moment: the task, its outcome if it has ended, its open questions if not."""

    task: Task
    outcome: Payload | None
    """The result of a completed task, the error of a failed one."""
    inputs: tuple[InputRequest, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """What an attempt begins with, read at one moment."""

    task: Task
    arguments: Payload
    caller: Payload | None
    variables: Payload | None
    steps: tuple[Step, ...]
    inputs: tuple[InputRequest, ...]
    artifacts: tuple[str, ...]
    """Their names. The content is read one by one."""

    def answer_to(self, key: str) -> Payload | None:
        """The answer to a question, if it has one."""
        return next((one.answer for one in self.inputs if one.key == key), None)
