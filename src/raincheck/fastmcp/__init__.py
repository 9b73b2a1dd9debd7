"""Durable tasks for servers of FastMCP 4: the same `Tasks`, for another library's servers."""

try:
    import fastmcp as _  # noqa: F401 - looked for here, so that what is missing is told with how to get it
except ImportError as error:
    raise ImportError("raincheck.fastmcp needs FastMCP: pip install 'raincheck[fastmcp]'") from error

from raincheck.fastmcp.tasks import Tasks

__all__ = ["Tasks"]
