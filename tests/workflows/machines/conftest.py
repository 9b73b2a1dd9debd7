"""Run the tests of state machines on each store."""

from tests.support.engine.fixtures import harness, pytest_generate_tests

__all__ = ["harness", "pytest_generate_tests"]
