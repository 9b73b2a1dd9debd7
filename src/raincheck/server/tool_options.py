"""What can be said of a tool that is served: what the SDK lists of it, and how its calls become tasks."""

from typing import Any, TypedDict, cast

from mcp.server.mcpserver import Icon
from mcp_types import ToolAnnotations

from raincheck.server.policy import ServedSettings


class Listing(TypedDict, total=False):
    """What the SDK's own `tool` takes besides a name."""

    title: str | None
    description: str | None
    annotations: ToolAnnotations | None
    icons: list[Icon] | None
    meta: dict[str, Any] | None
    structured_output: bool | None


class ToolOptions(Listing, ServedSettings, total=False):
    """Both."""


def split(options: ToolOptions) -> tuple[Listing, ServedSettings]:
    """The one and the other."""
    listing = {name: options.get(name) for name in Listing.__annotations__}
    settings = {name: value for name, value in options.items() if name not in listing}
    return cast("Listing", listing), cast("ServedSettings", settings)
