"""The PostgreSQL that tests start by themselves, for measuring with."""

from psycopg import AsyncConnection
from tests.support.postgres.server import PostgresServer

__all__ = ["PostgresServer", "analyse"]


async def analyse(url: str) -> None:
    """Have a database look at what is in it, as it does by itself within a minute, so that it plans with that."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("ANALYZE")
