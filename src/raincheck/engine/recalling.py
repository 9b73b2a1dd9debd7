"""Tasks that began under a definition that has changed since: they go on under the one that they began with."""

import asyncio
import logging
from collections.abc import Mapping

from raincheck.core.records import Tool
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.tools import TaskTool
from raincheck.errors import ConfigurationError
from raincheck.stores.interface import Store

logger = logging.getLogger(__name__)


async def recall(store: Store, namespace: str, toolbox: Toolbox) -> None:
    """Keep what the tools are made of, and take in those that live tasks need and that are not here any more."""
    if toolbox.rebuild is None:
        return
    needed = await store.remember(namespace, _definitions(toolbox))
    for tool, definition in needed.items():
        if toolbox.find(tool) is None:
            try:
                # In a thread: it looks for commands and modules.
                made = await asyncio.to_thread(toolbox.rebuild, definition)
                toolbox.keep_older(_checked(made, tool))
            except Exception as error:  # noqa: BLE001 - whatever was kept: what can be served must be
                logger.warning(
                    "tasks of %r in version %r have to wait, since that version can't be used any more: bring back "
                    "what it needs, or cancel them. %s",
                    tool.name,
                    tool.version,
                    error,
                )


def _checked(made: TaskTool, tool: Tool) -> TaskTool:
    """Refuse what was kept for one tool and is another: it would run in the place of that."""
    if made.runs != frozenset({tool}):
        raise ConfigurationError(f"what was kept for it is {made.name!r} in version {made.version!r}")
    return made


def _definitions(toolbox: Toolbox) -> Mapping[Tool, bytes]:
    return {Tool(one.name, one.version): one.definition for one in toolbox if one.definition is not None}
