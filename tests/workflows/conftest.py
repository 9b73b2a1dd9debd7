"""Fixtures for tests of workflows."""

from pathlib import Path

import pytest

from tests.support.workflows.harness import WorkflowHarness


@pytest.fixture
def workflow_harness(tmp_path: Path) -> WorkflowHarness:
    return WorkflowHarness(tmp_path)
