"""The check of module sizes: a limit that holds, and exceptions that only shrink."""

import pytest
from pages import ROOT
from scripts import sizes

CAPS = {"src": 100, "src/kit": 200}


@pytest.mark.parametrize(
    ("size", "listed", "says"),
    [
        (100, None, None),
        (101, None, "has 101 lines, and 100 are allowed"),
        (120, 120, None),
        (121, 120, "grew to 121"),
        (119, 120, "write 119 for 120"),
        (100, 120, "remove it from EXCEPTIONS"),
        (0, None, None),
    ],
)
def test_a_module_may_be_as_long_as_its_cap_or_its_exception(size: int, listed: int | None, says: str | None) -> None:
    exceptions = {} if listed is None else {"src/one.py": listed}
    faults = list(sizes.find_faults({"src/one.py": size}, CAPS, exceptions))
    assert len(faults) == (says is not None)
    assert says is None or says in faults[0]


def test_the_longest_folder_that_fits_counts() -> None:
    assert list(sizes.find_faults({"src/kit/one.py": 200}, CAPS, {})) == []


def test_an_exception_for_a_module_that_is_gone_is_a_fault() -> None:
    (fault,) = sizes.find_faults({}, CAPS, {"src/gone.py": 300})
    assert "is not there any more" in fault


def test_the_check_looks_at_the_modules_of_this_repository() -> None:
    measured = sizes.measure(ROOT)
    assert measured["scripts/sizes.py"] > 10
    assert "src/raincheck/core/lifecycle.py" in measured
