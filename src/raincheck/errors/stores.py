"""Errors of stores."""

from raincheck.errors.base import RaincheckError


class StoreError(RaincheckError):
    """The store could not do what was asked. Nothing is half-written."""

    def __init__(self, store: str, message: str) -> None:
        super().__init__(f"{store}: {message}")
        self.store = store


class StoreUnavailable(StoreError):
    """The store is busy, closed or out of reach. Trying again is reasonable."""


class StoreFull(StoreError):
    """The store has no room left."""


class StoreReadOnly(StoreError):
    """The store can't be written."""


class StoreCorrupt(StoreError):
    """The store is damaged."""


class NotAStore(StoreError):
    """What is kept there was not made by raincheck. It was left untouched."""


class SchemaMismatch(StoreError):
    """The store was written by a newer raincheck. It was left untouched."""

    def __init__(self, store: str, found: int, known: int) -> None:
        message = f"its schema is version {found}, and this raincheck knows versions up to {known}"
        super().__init__(store, f"{message}: upgrade raincheck, or name another store")
        self.found = found
        self.known = known
