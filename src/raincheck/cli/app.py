"""The program `raincheck`: its commands, each imported on use.

Most commands import the MCP SDK or a store, which takes longer than everything else they do. Help is printed without
any of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command's entry point and its line in the list of commands."""

    entry_point: str
    """The command's module below `raincheck.cli`, and its function."""
    help: str
    epilog: str = "EPILOG"
    """The name of the text that follows the command's options."""

    def load(self, name: str) -> Any:  # noqa: ANN401 - a click command, whose type typer does not export
        module_name, _, function = self.entry_point.partition(":")
        module = import_module(f"raincheck.cli.{module_name}")
        alone = make_group()
        alone.command(name, epilog=getattr(module, self.epilog), short_help=self.help)(getattr(module, function))
        return get_command(alone)


class LazyGroup(TyperGroup):
    """A group of commands that are imported on use."""

    lazy: ClassVar[Mapping[str, LazyCommand | typer.Typer]] = {}

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - typer's
        super().__init__(**options)
        self.commands = dict.fromkeys(self.lazy)  # type: ignore[assignment] # only their names are used, to suggest them

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - click's
        del ctx
        command = self.lazy.get(cmd_name)
        if not isinstance(command, typer.Typer):
            return None if command is None else command.load(cmd_name)
        group = get_command(command)
        group.name = cmd_name
        return group

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - likewise
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, _help_of(command)) for name, command in self.lazy.items()])


def _help_of(command: LazyCommand | typer.Typer) -> str:
    return command.help if isinstance(command, LazyCommand) else command.info.help or ""


def make_group(cls: type[TyperGroup] = TyperGroup, **options: Any) -> typer.Typer:  # noqa: ANN401 - typer's
    return typer.Typer(cls=cls, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, **options)


class TasksGroup(LazyGroup):
    """`raincheck tasks`."""

    lazy: ClassVar[Mapping[str, LazyCommand | typer.Typer]] = {
        "ls": LazyCommand("commands.tasks.ls:ls", "List tasks, newest first."),
        "show": LazyCommand("commands.tasks.show:show", "Show all that is known of a task."),
        "watch": LazyCommand("commands.tasks.watch:watch", "Show tasks as they change, until they end."),
        "cancel": LazyCommand("commands.tasks.control:cancel", "Stop tasks for good.", "CANCEL_EPILOG"),
        "retry": LazyCommand(
            "commands.tasks.control:retry", "Run again what went wrong, as a new task.", "RETRY_EPILOG"
        ),
        "pause": LazyCommand("commands.tasks.control:pause", "Hold tasks back until they are resumed.", "PAUSE_EPILOG"),
        "resume": LazyCommand("commands.tasks.control:resume", "Let paused tasks go on.", "RESUME_EPILOG"),
        "purge": LazyCommand("commands.tasks.purge:purge", "Delete tasks that have ended."),
        "export": LazyCommand("commands.tasks.export:export", "Print all that is kept, as lines of JSON."),
    }


class WorkflowGroup(LazyGroup):
    """`raincheck workflow`."""

    lazy: ClassVar[Mapping[str, LazyCommand | typer.Typer]] = {
        "check": LazyCommand(
            "commands.workflow.check:check",
            "Say what is wrong with a file of workflows, or what there is in it.",
            "CHECK_EPILOG",
        ),
        "graph": LazyCommand(
            "commands.workflow.check:graph", "Draw workflows, as Mermaid text or as SVG.", "GRAPH_EPILOG"
        ),
        "run": LazyCommand("commands.workflow.run:run", "Run a workflow here, and wait for its result."),
        "state": LazyCommand(
            "commands.workflow.state:state",
            "Say where a process is, and what leads on from there.",
            "STATE_EPILOG",
        ),
        "take": LazyCommand(
            "commands.workflow.state:take",
            "Take a process along one of its transitions, if its workflow allows that now.",
            "TAKE_EPILOG",
        ),
    }


class ConformanceGroup(LazyGroup):
    """`raincheck conformance`."""

    lazy: ClassVar[Mapping[str, LazyCommand | typer.Typer]] = {
        "2025-11-25": LazyCommand(
            "commands.conformance:check_v2025",
            'Check a server of the tasks of MCP 2025-11-25 ("G1"), over Streamable HTTP or stdio.',
        ),
    }


tasks_commands = make_group(TasksGroup, help="Look at the tasks of a store, and steer them.", no_args_is_help=True)
workflow_commands = make_group(
    WorkflowGroup, help="Check, draw and run workflows, and steer their processes.", no_args_is_help=True
)
conformance_commands = make_group(ConformanceGroup, help="Check a server against the protocol.", no_args_is_help=True)


@tasks_commands.callback()
@workflow_commands.callback()
@conformance_commands.callback()
def _group() -> None:
    """Have typer make a group of what has no commands of its own."""


class Program(LazyGroup):
    """`raincheck`."""

    lazy: ClassVar[Mapping[str, LazyCommand | typer.Typer]] = {
        "call": LazyCommand("commands.call:call", "Call a tool, and wait for its result."),
        "wait": LazyCommand("commands.calls:wait", "Wait for a call that is under way, or list them.", "WAIT"),
        "get": LazyCommand("commands.calls:get", "Show how a call is now, or its result.", "GET"),
        "cancel": LazyCommand("commands.calls:cancel", "Stop a call that is under way.", "CANCEL"),
        "answer": LazyCommand("commands.calls:answer", "Answer what a call that is under way asks.", "ANSWER"),
        "serve": LazyCommand("commands.serve:serve", "Serve the tools and tasks of a file or a module."),
        "worker": LazyCommand("commands.worker:worker", "Run the tasks of a file or a module, and serve nobody."),
        "tools": LazyCommand("commands.tools:tools", "Say what the calls of each tool become, and why."),
        "demo": LazyCommand("demo.story:demo", "See it work: three callers, and a server that dies."),
        "doctor": LazyCommand("commands.doctor:doctor", "Look for what is wrong with a store and its tasks."),
        "migrate": LazyCommand("commands.migrate:migrate", "Make a store's tables, or bring them up to date."),
        "stats": LazyCommand("commands.stats:stats", "Say how long tasks take and how many fail."),
        "conformance": conformance_commands,
        "workflow": workflow_commands,
        "tasks": tasks_commands,
    }


program = make_group(
    Program,
    name="raincheck",
    help="Durable, long-running MCP tasks: a ticket now, the result later.",
    no_args_is_help=True,
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"raincheck {version('raincheck')}")
        raise typer.Exit


@program.callback()
def raincheck(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Say which version this is, and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Durable, long-running MCP tasks: a ticket now, the result later."""
