"""The JSON-RPC error of a failed task, from whatever its attempts left."""

from typing import NotRequired, TypedDict

from raincheck.core.content import View
from raincheck.core.payload import Json
from raincheck.wire.codes import INTERNAL_ERROR
from raincheck.wire.words import as_object, outcome_of


class Error(TypedDict):
    """An error of JSON-RPC."""

    code: int
    message: str
    data: NotRequired[Json]


def error_of(view: View) -> Error:
    """The error that a failed task ended with: as its body chose it, or an internal one."""
    told = as_object(outcome_of(view))
    message = told.get("message")
    if not isinstance(message, str) or not message:
        message = view.task.status_message or "the task failed without a reason"
    code, data = told.get("code"), told.get("data")
    if told.get("kind") != "protocol" or not isinstance(code, int) or isinstance(code, bool):
        error_id = told.get("error_id")
        code, data = INTERNAL_ERROR, None if error_id is None else {"errorId": error_id}
    error: Error = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return error


def chose_its_error(view: View) -> bool:
    """Whether the error of a failed task is one that its body chose, in the protocol's own words."""
    return as_object(outcome_of(view)).get("kind") == "protocol"
