"""The aims: bounds for the figures of servers."""

from collections.abc import Mapping

from bench.figure import Bound, Side

_AIMS: Mapping[str, tuple[Side, Mapping[str, float]]] = {
    "create x16": ("at least", {"SQLite FULL": 0.60, "PostgreSQL": 0.45, "PostgreSQL, 1 w": 0.45}),
    "get x16": ("at least", {"SQLite FULL": 1.0, "PostgreSQL": 0.7, "PostgreSQL, 1 w": 0.7}),
    "all done x16": ("at least", {"SQLite FULL": 0.50, "PostgreSQL": 0.35, "PostgreSQL, 1 w": 0.35}),
    "result x1": ("at least", {"SQLite FULL": 0.33, "PostgreSQL": 0.25, "PostgreSQL, 1 w": 0.25}),
    "told": ("at most", {"SQLite FULL": 25, "PostgreSQL": 25}),
    "polled": ("at most", {"SQLite FULL": 0.1, "PostgreSQL": 0.1}),
    "memory, finished": ("at most", {"SQLite FULL": 0.1, "PostgreSQL": 0.1}),
    "get among many": ("at least", {"SQLite FULL": 0.95, "PostgreSQL": 0.95}),
}


def aim(name: str, server: str) -> Bound | None:
    """Return the bound of a server's figure, if it has one."""
    if name not in _AIMS:
        return None
    side, limits = _AIMS[name]
    return Bound(side, limits[server]) if server in limits else None
