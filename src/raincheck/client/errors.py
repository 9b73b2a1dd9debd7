"""Errors between the client and a server, other than those that the server reports itself."""

from collections.abc import Sequence

from raincheck.client.updates import Question
from raincheck.errors import RaincheckError, TaskError

NO_SERVER = "there is no MCP server at this address, which usually ends in /mcp"

REMEDIES = {
    401: "it wants to know who calls, so connect with credentials that are good, such as a header `Authorization`",
    403: "it does not let this caller in, so connect with other credentials",
    404: NO_SERVER,
    405: NO_SERVER,
    413: "that is too large, so send less: such as where a file is, in place of what is in it",
    429: "it is asked too often, so ask less often",
}
"""Remedies by HTTP status."""


class ServerUnreachable(RaincheckError):
    """The server can't be reached, or does not respond. Its tasks may continue."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"{server} can't be reached: {why}")
        self.server = server


class RequestRefused(ServerUnreachable):
    """The server, or a proxy before it, refused a request with an HTTP status. The request had no effect."""

    def __init__(self, server: str, status: int, retry_after: float | None = None) -> None:
        later = "" if retry_after is None else f", and not within the next {retry_after:g} s"
        to_do = REMEDIES.get(status, "it would be refused again, so see what the server, or a proxy before it, logs")
        # The server was reached, so the base class's message does not apply.
        RaincheckError.__init__(self, f"{server} refuses what it is asked (HTTP {status}): {to_do}{later}")
        self.server = server
        self.status = status
        self.retry_after = retry_after
        """Seconds after which to retry, if the server says so."""


class CallLost(RaincheckError):
    """The connection broke during a tool call, so it is unknown whether the work has started.

    A call with a `key` is sent again instead, if the server declares that it starts such a call once.
    """

    def __init__(self, server: str, tool: str, why: str, *, has_key: bool) -> None:
        # A server refuses keys from callers that it can't identify, so the advice says when a key helps.
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


class InvalidResponse(RaincheckError):
    """The server's response does not conform to the protocol."""


class TaskCancelled(TaskError):
    """The task was cancelled, by this caller or another actor, and has no result."""

    def __init__(self, task_id: str, message: str | None) -> None:
        # Servers without a reason send just this word.
        why = f": {message}" if message and message.lower() not in ("cancelled", "canceled") else ""
        super().__init__(task_id, f"task {task_id!r} was cancelled{why}")


class InputRequired(TaskError):
    """The task asks a question for which there is no callback. Answer it, and wait again."""

    def __init__(self, task_id: str, questions: Sequence[Question]) -> None:
        asked = "; ".join(f"{question.key}: {question.message or question.method}" for question in questions)
        super().__init__(
            task_id,
            f"task {task_id!r} asks ({asked}): answer with handle.answer({{key: …}}) and wait again, or give the "
            f"client a callback, such as elicitation_callback",
        )
        self.questions = tuple(questions)
