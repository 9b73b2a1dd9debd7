"""The store's SQL, read once."""

from importlib.resources import files

from raincheck.stores.sql import load_queries

QUERIES = load_queries(files("raincheck.stores.postgres") / "queries.sql")
