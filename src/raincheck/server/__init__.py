"""Serving tasks on the `mcp` SDK: what stands between its requests and the engine."""

from raincheck.server.tasks import Tasks

__all__ = ["Tasks"]
