"""The PostgreSQL that tests start by themselves, for measuring with."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "postgres"))
from postgres_serving import PostgresServer

__all__ = ["PostgresServer"]
