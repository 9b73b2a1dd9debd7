"""Serve tasks on the `mcp` SDK: the layer between its requests and the engine.

Internal: what users need of it is exported by `raincheck`.
"""

from raincheck.server.tasks import Tasks

__all__ = ["Tasks"]
