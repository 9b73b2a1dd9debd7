"""Errors between the client and a server, except errors that the server itself reports."""

from collections.abc import Sequence

from raincheck.client.inputs import Question
from raincheck.errors import RaincheckError, TaskError

NO_SERVER = "there is no MCP server at this address: check the URL, which usually ends in /mcp"

REMEDIES = {
    401: "authentication is required, so connect with valid credentials, such as an `Authorization` header",
    403: "this caller has no access, so connect with other credentials",
    404: NO_SERVER,
    405: NO_SERVER,
    413: "the request is too large, so send less, such as the location of a file instead of its content",
    429: "it receives too many requests, so send fewer",
}
"""Remedies by HTTP status."""


class ServerUnreachable(RaincheckError):
    """The server can't be reached, or does not respond. Its tasks may continue."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"{server} can't be reached: {reason}")
        self.server = server


class RequestRefused(ServerUnreachable):
    """The server, or a proxy in front of it, refused a request with an HTTP status. The request had no effect."""

    def __init__(self, server: str, status: int, retry_after: float | None = None) -> None:
        later = "" if retry_after is None else f"; retry after {retry_after:g} s"
        remedy = REMEDIES.get(status, "a retry would be refused too, so see the log of the server or proxy")
        # The server was reached, so the base class's message does not apply.
        RaincheckError.__init__(self, f"{server} refused the request (HTTP {status}): {remedy}{later}")
        self.server = server
        self.status = status
        self.retry_after = retry_after
        """Seconds after which to retry, if the server sends them."""


class CallLost(RaincheckError):
    """The connection broke during a tool call, so it is unknown whether the work has started.

    A call with a `key` is sent again instead, if the server declares that it starts such a call once.
    """

    def __init__(self, server: str, tool: str, reason: str, *, has_key: bool) -> None:
        # A server refuses keys from callers that it can't identify, so the advice explains when a key helps.
        advice = (
            "The key does not help: the server does not declare that it accepts keys from you for this tool"
            if has_key
            else "If it must not run twice, pass a key with the first call. This requires a server that runs raincheck "
            "and can identify you"
        )
        super().__init__(
            f"the connection to {server} broke during a call of {tool!r} ({reason}), so it is unknown whether the call "
            f"was started: check before you call again. {advice}"
        )
        self.server = server
        self.tool = tool
        self.has_key = has_key


class InvalidResponse(RaincheckError):
    """The server's response does not conform to the protocol."""


class ResponseTooLarge(RaincheckError):
    """A response has more bytes than the client reads. The server, its tasks and their results are unaffected."""

    def __init__(self, size: int | None, limit: int) -> None:
        problem = (
            f"has {size:,} bytes, and the limit is {limit:,}"
            if size
            else f"is larger than the limit of {limit:,} bytes"
        )
        super().__init__(
            f"the response of the server {problem}: allow more with max_response_bytes (--max-response-bytes on the "
            f"command line), or let the tool return less, such as a link"
        )
        self.size = size
        """The size in bytes, if the server declares it."""
        self.limit = limit


class TaskCancelled(TaskError):
    """The task was cancelled, by this caller or another actor, and has no result."""

    def __init__(self, task_id: str, message: str | None) -> None:
        # A server that has no reason to report sends only this word.
        reason = f": {message}" if message and message.lower() not in ("cancelled", "canceled") else ""
        super().__init__(task_id, f"task {task_id!r} was cancelled{reason}")


class InputRequired(TaskError):
    """The task asks a question for which there is no callback. Answer it, and wait again."""

    def __init__(self, task_id: str, questions: Sequence[Question]) -> None:
        asked = "; ".join(f"{question.key}: {question.message or question.method}" for question in questions)
        super().__init__(
            task_id,
            f"task {task_id!r} waits for input ({asked}): answer with handle.answer({{key: …}}) and wait again, or "
            f"pass the client a callback, such as elicitation_callback",
        )
        self.questions = tuple(questions)
