"""Tasks in a PostgreSQL database: for any number of servers and workers, on any number of machines."""

from raincheck.stores.postgres.address import parse_url
from raincheck.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore", "parse_url"]
