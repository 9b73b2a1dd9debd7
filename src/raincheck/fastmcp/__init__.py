"""Durable tasks for FastMCP 4 servers: the same `Tasks`, for the servers of another library."""

try:
    import fastmcp as _  # noqa: F401 - imported first, so that the error says how to install it
except ImportError as error:
    raise ImportError("raincheck.fastmcp needs FastMCP: pip install 'raincheck[fastmcp]'") from error

from raincheck.fastmcp.tasks import Tasks

__all__ = ["Tasks"]
