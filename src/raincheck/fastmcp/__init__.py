"""Durable tasks for FastMCP 4 servers: the same `Tasks` as for servers of the MCP SDK."""

try:
    import fastmcp as _  # noqa: F401 - imported first, so that the error says how to install it
except ImportError as error:
    raise ImportError("raincheck.fastmcp needs FastMCP 4: pip install 'raincheck[fastmcp]'") from error

from raincheck.fastmcp.tasks import Tasks

__all__ = ["Tasks"]
