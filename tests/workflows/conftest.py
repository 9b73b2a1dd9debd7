"""A place to write workflows in, and to run them."""

from pathlib import Path

import pytest

from tests.support.workflows.harness import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)
