"""Checks of all messages of the run, and of the connections. They run after all other checks."""

from raincheck.conformance.caller import UNKNOWN_ID, ConformanceClient
from raincheck.conformance.check import MUST, MUST_NOT, SHOULD, Topic
from raincheck.conformance.connection import Message, is_object, shorten
from raincheck.conformance.requirements import RequirementNotMet, is_integer

topic = Topic("Messages", "Overview: Messages")

MAX_REPORTED = 3
"""Maximum number of problems to report."""


@topic.check(MUST_NOT, "v2025-messages-only", section="Transports: stdio")
async def messages_only(caller: ConformanceClient) -> None:
    """The server sends only messages: no logs or banners between them."""
    await caller.request("ping")
    if caller.history.malformed:
        raise RequirementNotMet(f"the server sent text that is not a message: {shorten(caller.history.malformed[0])}")


@topic.check(
    MUST,
    "v2025-messages-json-rpc",
    requirement=(
        "Every message is a JSON-RPC 2.0 message. "
        "A response has a result, or an error with an integer code and a message."
    ),
)
async def messages_json_rpc(caller: ConformanceClient) -> None:
    await caller.request("tasks/get", {"taskId": UNKNOWN_ID})
    for received in caller.history.received:
        if error := _message_error(received.message):
            raise RequirementNotMet(f"{error}: {shorten(received.message)}")


def _message_error(message: Message) -> str | None:
    if message.get("jsonrpc") != "2.0":
        return 'jsonrpc is not "2.0"'
    if "method" in message:
        return None if isinstance(message["method"], str) else "method is not a string"
    if ("result" in message) == ("error" in message):
        return "a response needs either a result or an error"
    if "result" in message:
        return None if is_object(message["result"]) else "result is not an object"
    error = message["error"]
    if not is_object(error) or not is_integer(error.get("code")):
        return "error.code is not an integer"
    return None if isinstance(error.get("message"), str) else "error.message is not a string"


@topic.check(SHOULD, "v2025-errors-informative", section="Protocol Errors")
async def errors_informative(caller: ConformanceClient) -> None:
    """The message of an error explains what is wrong."""
    await caller.request("tasks/get", {"taskId": UNKNOWN_ID})
    for received in caller.history.received:
        error = received.message.get("error")
        if is_object(error) and not str(error.get("message", "")).strip():
            raise RequirementNotMet(f"an error has no message: {shorten(received.message)}")


@topic.check(SHOULD, "v2025-steady", section="Behavior Requirements")
async def steady(caller: ConformanceClient) -> None:
    """A check that passes on a new connection also passes on one that was used before."""
    if caller.retry_problems:
        raise RequirementNotMet("; ".join(shorten(problem) for problem in caller.retry_problems[:MAX_REPORTED]))
