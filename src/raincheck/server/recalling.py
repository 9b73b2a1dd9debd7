"""What a server that starts tells of the tasks that are there and that it can't run."""

import logging
from collections import Counter
from datetime import datetime

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.engine import Toolbox
from raincheck.stores.interface import Store
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery

logger = logging.getLogger(__name__)


async def tell_of_missing_tools(store: Store, namespace: str, toolbox: Toolbox, now: datetime) -> None:
    """Say which tasks wait for a tool that is not here: it may have got another name, or another version."""
    query = TaskQuery(Scope.within(namespace), phases=frozenset({Phase.QUEUED, Phase.PARKED}))
    page = await store.list_tasks(query, now=now, limit=PAGE_LIMIT)
    missing = Counter(task.tool for task in page.tasks if toolbox.find(task.tool) is None)
    for tool, count in missing.items():
        logger.warning(
            "at least %d waiting tasks need tool %r in version %r, which this server does not have: "
            "give a tool that name and version, or let a newer version say that it `continues` that one",
            count,
            tool.name,
            tool.version,
        )
