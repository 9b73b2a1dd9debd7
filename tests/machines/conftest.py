"""State machines run on each store."""

from bench_fixtures import bench, pytest_generate_tests

__all__ = ["bench", "pytest_generate_tests"]
