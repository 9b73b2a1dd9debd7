"""CONTRIBUTING.md says where things are, correctly."""

import re
from pathlib import Path

import pytest

from tests.support import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:src|tests|scripts|docs|bench|examples|deploy)/[\w/.-]*)`", TEXT)))


def packages() -> list[Path]:
    return sorted(folder.parent for folder in (ROOT / "src/raincheck").glob("*/__init__.py"))


@pytest.mark.parametrize("path", PATHS)
def test_every_path_on_the_map_exists(path: str) -> None:
    assert (ROOT / path).exists(), f"CONTRIBUTING.md names {path}, which does not exist"


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_every_package_is_on_the_map(package: Path) -> None:
    name = package.relative_to(ROOT).as_posix()
    assert any(path.startswith(f"{name}/") for path in PATHS), f"CONTRIBUTING.md does not say what {name} is for"
