"""Markdown tables, and the generated parts of pages with measured figures."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill_parts(page: str, mark: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """Return the page with updated parts. Each is between `<!-- mark: name -->` and `<!-- end mark -->`."""
    part = re.compile(rf"(<!-- {mark}: ([\w ]+) -->\n).*?(<!-- end {mark} -->)", re.DOTALL)
    return part.sub(lambda found: f"{found[1]}{parts[found[2]]()}\n{found[3]}", page)
