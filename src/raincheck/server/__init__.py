"""Serve tasks on the `mcp` SDK: the layer between its requests and the engine."""

from raincheck.server.tasks import Tasks

__all__ = ["Tasks"]
