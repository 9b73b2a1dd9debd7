"""The Procrastinate dispatcher, whose jobs are queued in the same PostgreSQL database as the tasks."""

from raincheck.dispatchers.procrastinate.dispatcher import ProcrastinateDispatcher
from raincheck.dispatchers.procrastinate.jobs import ProcrastinateJobQueue

__all__ = ["ProcrastinateDispatcher", "ProcrastinateJobQueue"]
