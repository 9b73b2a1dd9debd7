"""raincheck: durable, long-running MCP tasks. A slip now, the result later."""

from raincheck.errors import RaincheckError
from raincheck.opening import open_store

__all__ = ["RaincheckError", "open_store"]
