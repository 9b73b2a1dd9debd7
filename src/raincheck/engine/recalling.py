"""Tasks that began under a definition that has changed since: they go on under the one that they began with."""

import asyncio
import logging
from collections.abc import Mapping

from raincheck.core.records import Tool
from raincheck.engine.toolbox import Toolbox
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
                toolbox.keep_older(await asyncio.to_thread(toolbox.rebuild, definition))
            except ConfigurationError as error:
                logger.warning(
                    "tasks of %r in version %r have to wait, since that version can't be used any more: bring back "
                    "what it needs, or cancel them. %s",
                    tool.name,
                    tool.version,
                    error,
                )


def _definitions(toolbox: Toolbox) -> Mapping[Tool, bytes]:
    return {Tool(one.name, one.version): one.definition for one in toolbox if one.definition is not None}
