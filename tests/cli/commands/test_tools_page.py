"""Tests that the output on docs/howto/see-what-tools-do.md is what the command prints."""

import asyncio
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from raincheck.cli.commands.tools import print_explanation
from raincheck.cli.loader import load_tasks
from tests.support import ROOT
from tests.support.cli.report_server import record_durations, write

PAGE = (ROOT / "docs/howto/see-what-tools-do.md").read_text(encoding="utf-8")
COLUMNS = 100


@pytest.mark.usefixtures("folder")
def test_the_output_on_the_page_is_what_is_printed() -> None:
    server, output = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[0] for kind in ("python", "text"))
    write(server, "server.py")
    record_durations(look_up=[0.05] * 180 + [0.4] * 30 + [2.0] * 4, build_report=[70.0] * 30 + [400.0] * 11)
    terminal = Console(file=io.StringIO(), width=COLUMNS, force_terminal=True, color_system=None)
    explanation = asyncio.run(load_tasks("server.py").explain())
    with terminal.capture() as captured:
        print_explanation(explanation, terminal)
    printed = captured.get().replace(str(Path.cwd()), "/srv/reports")
    assert [line.rstrip() for line in printed.splitlines()] == output.splitlines()
