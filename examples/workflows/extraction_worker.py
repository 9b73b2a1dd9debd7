"""What extraction.yaml does with a page. In earnest this would be a model or a service, which takes its time."""

import re
from pathlib import Path

from raincheck import ToolError

BOOKS = Path(__file__).parent / "pages"

AMOUNT = re.compile(r"EUR (\d+\.\d\d)")


def list_pages(book: str) -> list[str]:
    """The names of the pages, in order."""
    pages = sorted(page.name for page in (BOOKS / book).glob("*.txt"))
    if not pages:
        # The message of a ToolError is for callers. Of any other error they see an id only.
        raise ToolError(f"there is no book {book!r}, or it has no pages")
    return pages


def extract(book: str, page: str) -> dict[str, float]:
    """What is on a page."""
    text = read(BOOKS / book / page)
    if not text.strip():
        raise ToolError(f"{page} is empty: scan it again")
    found = [float(amount) for amount in AMOUNT.findall(text)]
    return {"amounts": len(found), "total": round(sum(found), 2)}


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")
