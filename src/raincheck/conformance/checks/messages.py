"""Checks of all messages of the run, and of the connections. They run after all other checks."""

from raincheck.conformance.caller import UNKNOWN_ID, ConformanceClient
from raincheck.conformance.check import check
from raincheck.conformance.messages import Message, is_object, shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import is_integer

MANY = 3
"""Maximum number of repeated problems to report."""


@check(
    "g1-messages-only",
    RequirementLevel.MUST_NOT,
    "Transports: stdio",
    "The server sends nothing that is not a message: no logs, no banners between them.",
)
async def messages_only(caller: ConformanceClient) -> None:
    await caller.connection.request("ping")
    if caller.connection.history.malformed:
        raise RequirementNotMet(f"this came among the messages: {shorten(caller.connection.history.malformed[0])}")


@check(
    "g1-messages-json-rpc",
    RequirementLevel.MUST,
    "Overview: Messages",
    "Every message is one of JSON-RPC 2.0, with a result or an error that has an integer code and a message.",
)
async def messages_json_rpc(caller: ConformanceClient) -> None:
    await caller.connection.request("tasks/get", {"taskId": UNKNOWN_ID})
    for came in caller.connection.history.received:
        if fault := _fault(came.message):
            raise RequirementNotMet(f"{fault}: {shorten(came.message)}")


def _fault(message: Message) -> str | None:
    if message.get("jsonrpc") != "2.0":
        return 'jsonrpc is not "2.0"'
    if "method" in message:
        return None if isinstance(message["method"], str) else "method is not a string"
    if ("result" in message) == ("error" in message):
        return "there is not either a result or an error"
    if "result" in message:
        return None if is_object(message["result"]) else "result is not an object"
    error = message["error"]
    if not is_object(error) or not is_integer(error.get("code")):
        return "error.code is not an integer"
    return None if isinstance(error.get("message"), str) else "error.message is not a string"


@check(
    "g1-errors-informative",
    RequirementLevel.SHOULD,
    "Protocol Errors",
    "An error says in its message what is wrong.",
)
async def errors_informative(caller: ConformanceClient) -> None:
    await caller.connection.request("tasks/get", {"taskId": UNKNOWN_ID})
    for came in caller.connection.history.received:
        error = came.message.get("error")
        if is_object(error) and not str(error.get("message", "")).strip():
            raise RequirementNotMet(f"an error has no message: {shorten(came.message)}")


@check(
    "g1-steady",
    RequirementLevel.SHOULD,
    "Behavior Requirements",
    "What the server does well on a new connection, it does well on one that was used before.",
)
async def steady(caller: ConformanceClient) -> None:
    if caller.retry_problems:
        raise RequirementNotMet("; ".join(shorten(one) for one in caller.retry_problems[:MANY]))


CHECKS = (messages_only, messages_json_rpc, errors_informative, steady)
