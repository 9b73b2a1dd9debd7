"""The client: calls tools of any MCP server, and follows calls that become long-running tasks."""

from raincheck.client.client import TaskClient
from raincheck.client.connection import record_http_status
from raincheck.client.errors import (
    CallLost,
    InputRequired,
    InvalidResponse,
    RequestRefused,
    ResponseTooLarge,
    ServerUnreachable,
    TaskCancelled,
)
from raincheck.client.handle import Handle
from raincheck.client.inputs import Question
from raincheck.client.saved_calls import SavedCalls, TaskRef
from raincheck.client.tracker import TaskProgress, Update, answer_later

__all__ = [
    "CallLost",
    "Handle",
    "InputRequired",
    "InvalidResponse",
    "Question",
    "RequestRefused",
    "ResponseTooLarge",
    "SavedCalls",
    "ServerUnreachable",
    "TaskCancelled",
    "TaskClient",
    "TaskProgress",
    "TaskRef",
    "Update",
    "answer_later",
    "record_http_status",
]
