"""Operator queries on a store, shared by the CLI and the dashboard."""
