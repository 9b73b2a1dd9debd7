"""Draw a picture of the demo: `python -m scripts.demo_picture docs/demo.svg` runs it and saves its output."""

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

# The SVG refers to fonts on a third-party server. Every viewer has a font of its own.
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def draw(target: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", record=True, width=WIDTH)
    console.print(Text.assemble(("$ ", "dim"), ("scripts/demo", "bold")))
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(run(console, Path(folder), "moments"))
    print_summary(console, outcome)
    assert outcome.is_correct, "the demo failed: draw no picture of it"  # noqa: S101 - a script
    target.write_text(FONTS.sub("", console.export_svg(title="raincheck demo")))


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
