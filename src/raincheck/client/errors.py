"""What can go wrong between a caller and a server, beside what the server itself says."""

from collections.abc import Sequence

from raincheck.client.updates import Question
from raincheck.errors import RaincheckError, TaskError


class ServerUnreachable(RaincheckError):
    """The server can't be reached, or does not answer. Its tasks may well go on."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"{server} can't be reached: {why}")
        self.server = server


class CallLost(RaincheckError):
    """The connection broke while a tool was called, so nobody can say whether its work has begun.

    A call with a `key` is made again instead: the server begins it once.
    """

    def __init__(self, server: str, tool: str, why: str) -> None:
        super().__init__(
            f"the connection to {server} broke while {tool!r} was called ({why}): it may run, or not. Where it must "
            f"not run twice, look before you call again, and call with a key in the first place"
        )
        self.server = server
        self.tool = tool


class BadAnswer(RaincheckError):
    """The server answered with something that is not what the protocol says."""


class TaskCancelled(TaskError):
    """The task was cancelled, by its caller or by somebody else, and has no result."""

    def __init__(self, task_id: str, message: str | None) -> None:
        # Servers that have nothing to say of it say just that.
        why = f": {message}" if message and message.lower() not in ("cancelled", "canceled") else ""
        super().__init__(task_id, f"task {task_id!r} was cancelled{why}")


class InputNeeded(TaskError):
    """The task asks something, and there is nobody to ask: answer it, and wait again."""

    def __init__(self, task_id: str, questions: Sequence[Question]) -> None:
        asked = "; ".join(f"{question.key}: {question.message or question.method}" for question in questions)
        super().__init__(
            task_id,
            f"task {task_id!r} asks ({asked}): answer with handle.answer({{key: …}}) and wait again, or give the "
            f"client a callback, such as elicitation_callback",
        )
        self.questions = tuple(questions)
