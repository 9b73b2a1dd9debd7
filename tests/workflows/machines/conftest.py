"""State machines run on each store."""

from tests.support.engine.fixtures import bench, pytest_generate_tests

__all__ = ["bench", "pytest_generate_tests"]
