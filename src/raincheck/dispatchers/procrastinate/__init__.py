"""Attempts carried by Procrastinate, which queues its jobs in the same PostgreSQL."""

from raincheck.dispatchers.procrastinate.dispatcher import ProcrastinateDispatcher
from raincheck.dispatchers.procrastinate.jobs import ProcrastinateJobs

__all__ = ["ProcrastinateDispatcher", "ProcrastinateJobs"]
