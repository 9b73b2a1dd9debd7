"""Every link on a docs page to a page, a heading or a file of this repository has a target."""

import re
from pathlib import Path

import pytest

from tests.support.docs.pages import PAGES, ROOT, name_of, prose_of

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the headings on a page, as GitHub names them."""
    headings = HEADING.findall(prose_of(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose_of(page)):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} has no target"
        assert target.is_relative_to(ROOT), f"{link} leads outside the repository"
        if anchor:
            assert anchor in anchors_of(target), f"{link} names a heading that {name_of(target)} does not have"


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        links = (link.partition("#")[0] for link in LINK.findall(prose_of(page)))
        waiting += [target for link in links if (target := (page.parent / link).resolve()).suffix == ".md"]
    assert set(PAGES) <= seen
