"""The client: calls tools of any MCP server, and keeps hold of those whose work takes long."""

from raincheck.client.book import TaskBook
from raincheck.client.client import TaskClient
from raincheck.client.errors import BadAnswer, CallLost, InputNeeded, RequestRefused, ServerUnreachable, TaskCancelled
from raincheck.client.handle import Handle
from raincheck.client.questions import by_hand
from raincheck.client.slips import Slip
from raincheck.client.statuses import note_status
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
