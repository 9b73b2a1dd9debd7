"""The functions that extraction.yaml calls. A real one would call a model or a service, which takes a while."""

import re
from pathlib import Path

from raincheck import ToolError

BOOKS = Path(__file__).parent / "pages"

AMOUNT = re.compile(r"EUR (\d+\.\d\d)")


def list_pages(book: str) -> list[str]:
    """Return the names of the pages, in order."""
    pages = sorted(page.name for page in (BOOKS / book).glob("*.txt"))
    if not pages:
        # Callers see the message of a ToolError. Of any other error they see only an id.
        raise ToolError(f"there is no book {book!r}, or it has no pages")
    return pages


def extract(book: str, page: str) -> dict[str, float]:
    """Return the number of amounts on a page, and their total."""
    text = read(BOOKS / book / page)
    if not text.strip():
        raise ToolError(f"{page} is empty: scan it again")
    amounts = [float(amount) for amount in AMOUNT.findall(text)]
    return {"amounts": len(amounts), "total": round(sum(amounts), 2)}


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")
