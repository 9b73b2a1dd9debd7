"""Draws the picture of the demo: `python -m scripts.picture docs/demo.svg` runs it, and keeps what a terminal shows."""

import asyncio
import io
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raincheck.cli.demo.story import print_summary, run

WIDTH = 110

# The drawing names fonts of somebody else's server. Whoever looks at it has one.
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def draw(target: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", record=True, width=WIDTH)
    console.print(Text.assemble(("$ ", "dim"), ("scripts/demo", "bold")))
    with tempfile.TemporaryDirectory() as folder:
        ending, history = asyncio.run(run(console, Path(folder), "moments"))
    print_summary(console, ending, history)
    assert ending.is_correct, "the demo did not come out right"  # noqa: S101 - no picture of that
    target.write_text(FONTS.sub("", console.export_svg(title="raincheck demo")))


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
