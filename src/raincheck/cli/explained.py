"""What callers of each tool get, as a table: with colours where there is a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.telling import WIDE
from raincheck.server.explaining import ExplainedTool, Explanation, Gets, Treatment
from raincheck.wire.spoken import in_words

STYLES = {Gets.RESULT: "green", Gets.TASK: "cyan", Gets.TOLD: "yellow", Gets.REFUSED: "bold red"}

AFTER = {Gets.TASK: "gets a task", Gets.TOLD: "is told how to go on"}


def print_explanation(explanation: Explanation, console: Console | None = None) -> None:
    """Print a row for each tool, and where the measurements are from."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDE, color_system=None)
    if explanation.tools:
        console.print(_table(explanation.tools))
        console.print()
    else:
        console.print("no tool's calls become tasks: decorate one with @tasks.tool, or enable one with tasks.enable")
    console.print(Text(explanation.source, "dim"), soft_wrap=True)


def _table(tools: tuple[ExplainedTool, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tool", overflow="fold", max_width=24)
    table.add_column("measured", no_wrap=True)
    table.add_column("callers with tasks", ratio=1)
    table.add_column("callers without tasks", ratio=1)
    for number, tool in enumerate(tools):
        if number:
            table.add_row()
        name = Text(f"{tool.name}\n").append(tool.mode, "dim")
        table.add_row(name, _measured(tool), _words(tool.with_tasks), _words(tool.without_tasks))
    return table


def _measured(tool: ExplainedTool) -> str:
    if tool.p50_seconds is None or tool.p90_seconds is None:
        return "no calls"
    calls = "1 call" if tool.measured == 1 else f"{tool.measured} calls"
    return f"{calls}\nhalf in {in_words(tool.p50_seconds)}\n9 of 10 in {in_words(tool.p90_seconds)}"


def _words(treatment: Treatment) -> Text:
    return Text(f"{_what(treatment)}\n", STYLES[treatment.gets]).append(treatment.why, "not bold default dim")


def _what(treatment: Treatment) -> str:
    if treatment.gets is Gets.REFUSED:
        return "is refused"
    if treatment.waits_seconds is None:
        return "waits for the result"
    after = AFTER[treatment.gets]
    if not treatment.waits_seconds:
        return f"{after} at once"
    return f"waits up to {in_words(treatment.waits_seconds)}, then {after}"
