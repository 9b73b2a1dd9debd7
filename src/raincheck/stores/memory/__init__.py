"""Tasks in this process's memory: the reference model that every other store is compared with."""

from raincheck.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
