"""The generated parts of the docs are up to date, and outdated parts are found."""

from pathlib import Path

import pytest

from raincheck.core.lifecycle import TRANSITIONS
from scripts import generate
from tests.support.docs.pages import PAGES, name_of, text_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_up_to_date(page: Path) -> None:
    assert generate.fill(text_of(page)) == text_of(page), "run scripts/check --fix"


def test_the_diagram_has_every_pair_of_the_table_and_no_other() -> None:
    drawn: set[tuple[str, str, str]] = set()
    for line in generate.diagram().splitlines():
        edge, _, events = line.strip().partition(": ")
        before, arrow, after = edge.partition(" --> ")
        if arrow and "[*]" not in edge:
            drawn |= {(before, event, after) for event in events.split(", ")}
    table = {(before, event, after) for before, row in TRANSITIONS.items() for event, after in row.items()}
    assert drawn == table


def test_an_outdated_part_is_rewritten_and_the_rest_is_unchanged() -> None:
    page = "before\n<!-- generated: phases -->\nwhat was once so\n<!-- end -->\nafter\n"
    filled = generate.fill(page)
    assert filled.startswith("before\n<!-- generated: phases -->\n| phase | meaning |")
    assert filled.endswith("|\n<!-- end -->\nafter\n")
    assert generate.fill(filled) == filled


def test_a_stale_page_fails_the_check_and_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    stale = "<!-- generated: statuses -->\n<!-- end -->\n"
    page.write_text(stale)
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err == "README.md is out of date: run scripts/check --fix\n"
    assert page.read_text() == stale
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_code_is_copied_from_its_file_unchanged() -> None:
    shown = generate.source("docs_src/toy_store.py", "ToyStore.claim")
    assert shown.startswith("```python\nasync def claim(self, request")
    with pytest.raises(StopIteration):
        generate.source("docs_src/toy_store.py", "ToyStore.no_such")
