"""The client: calls tools of any MCP server, and keeps hold of those whose work takes long."""

from raincheck.client.client import TaskClient
from raincheck.client.errors import BadAnswer, CallLost, InputNeeded, RequestRefused, ServerUnreachable, TaskCancelled
from raincheck.client.handle import Handle
from raincheck.client.options import by_hand
from raincheck.client.saved_calls import Slip, TaskBook
from raincheck.client.transport_errors import note_status
from raincheck.client.updates import Progress, Question, Update

__all__ = [
    "BadAnswer",
    "CallLost",
    "Handle",
    "InputNeeded",
    "Progress",
    "Question",
    "RequestRefused",
    "ServerUnreachable",
    "Slip",
    "TaskBook",
    "TaskCancelled",
    "TaskClient",
    "Update",
    "by_hand",
    "note_status",
]
