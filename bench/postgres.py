"""The PostgreSQL server of the tests, used for measurements."""

from psycopg import AsyncConnection
from tests.support.postgres.server import PostgresServer

__all__ = ["PostgresServer", "analyse"]


async def analyse(url: str) -> None:
    """Update the statistics of the query planner, as autovacuum does within a minute."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("ANALYZE")
