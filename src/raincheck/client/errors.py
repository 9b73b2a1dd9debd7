"""What can go wrong between a caller and a server, beside what the server itself says."""

from collections.abc import Sequence

from raincheck.client.updates import Question
from raincheck.errors import RaincheckError, TaskError

NO_SERVER = "there is no MCP server at this address, which usually ends in /mcp"

TO_DO = {
    401: "it wants to know who calls, so connect with credentials that are good, such as a header `Authorization`",
    403: "it does not let this caller in, so connect with other credentials",
    404: NO_SERVER,
    405: NO_SERVER,
    413: "that is too large, so send less: such as where a file is, in place of what is in it",
    429: "it is asked too often, so ask less often",
}
"""By the status of HTTP."""


class ServerUnreachable(RaincheckError):
    """The server can't be reached, or does not answer. Its tasks may well go on."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"{server} can't be reached: {why}")
        self.server = server


class RequestRefused(ServerUnreachable):
    """The server, or what stands before it, does not take a request, by a status of HTTP. Nothing was done for it."""

    def __init__(self, server: str, status: int, retry_after: float | None = None) -> None:
        later = "" if retry_after is None else f", and not within the next {retry_after:g} s"
        to_do = TO_DO.get(status, "it would be refused again, so see what the server, or a proxy before it, logs")
        # It was reached, so these are not the words of the others.
        RaincheckError.__init__(self, f"{server} refuses what it is asked (HTTP {status}): {to_do}{later}")
        self.server = server
        self.status = status
        self.retry_after = retry_after
        """Seconds, where the server says so."""


class CallLost(RaincheckError):
    """The connection broke while a tool was called, so nobody can say whether its work has begun.

    A call with a `key` is made again instead, where the server says that it begins such a call once.
    """

    def __init__(self, server: str, tool: str, why: str, *, has_key: bool) -> None:
        # Who can't be told from others is refused a key, so it is advised to those alone whom the server takes it from.
        advice = (
            "The key does not help: the server does not say that it takes one from you for this tool"
            if has_key
            else "Where it must not run twice, call with a key in the first place, if the server takes one from you: "
            "it needs raincheck for that, and has to know who you are"
        )
        super().__init__(
            f"the connection to {server} broke while {tool!r} was called ({why}): it may run, or not. Look before you "
            f"call it again. {advice}"
        )
        self.server = server
        self.tool = tool
        self.has_key = has_key


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
