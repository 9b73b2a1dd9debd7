"""The program `raincheck`: its commands, each imported on use.

Most commands import the MCP SDK or a store, which takes longer than everything else that they do. Help is printed
without importing either.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, TypeAlias

import typer
from typer.core import TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command's entry point and its line in the list of commands."""

    entry_point: str
    """The command's module below `raincheck.cli`, and its function."""
    help: str

    def load(self, name: str) -> Any:  # noqa: ANN401 - a click command, whose type typer does not export
        module_name, _, function = self.entry_point.partition(":")
        module = import_module(f"raincheck.cli.{module_name}")
        # The text that follows the command's options. Click does not rewrap what follows a line that contains only \b.
        epilog = getattr(module, f"{function.upper()}_EPILOG", None) or module.EPILOG
        group = make_group()
        group.command(name, epilog=epilog, short_help=self.help)(getattr(module, function))
        return get_command(group)


Commands: TypeAlias = Mapping[str, LazyCommand | typer.Typer]


class LazyGroup(TyperGroup):
    """A group of commands that are imported on use."""

    lazy: ClassVar[Commands] = {}

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

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, _help_of(command)) for name, command in self.lazy.items()])


def _help_of(command: LazyCommand | typer.Typer) -> str:
    return command.help if isinstance(command, LazyCommand) else command.info.help or ""


def make_group(cls: type[TyperGroup] = TyperGroup, **options: Any) -> typer.Typer:  # noqa: ANN401 - typer's
    return typer.Typer(cls=cls, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, **options)


TASKS: Commands = {
    "ls": LazyCommand("commands.tasks.ls:ls", "List tasks, newest first."),
    "show": LazyCommand("commands.tasks.show:show", "Show everything about a task."),
    "watch": LazyCommand("commands.tasks.watch:watch", "Show tasks as they change, until they end."),
    "cancel": LazyCommand("commands.tasks.control:cancel", "Cancel tasks."),
    "retry": LazyCommand("commands.tasks.control:retry", "Run failed or cancelled tasks again, as new tasks."),
    "pause": LazyCommand("commands.tasks.control:pause", "Pause tasks until they are resumed."),
    "resume": LazyCommand("commands.tasks.control:resume", "Resume paused tasks."),
    "purge": LazyCommand("commands.tasks.purge:purge", "Delete tasks that have ended."),
    "export": LazyCommand("commands.tasks.ls:export", "Export tasks with all their data, as lines of JSON."),
}

WORKFLOW: Commands = {
    "check": LazyCommand("commands.workflow.check:check", "Check a file of workflows, and list what it contains."),
    "graph": LazyCommand("commands.workflow.check:graph", "Draw workflows, as Mermaid text or as SVG."),
    "run": LazyCommand("commands.workflow.run:run", "Run a workflow here, and wait for its result."),
    "state": LazyCommand(
        "commands.workflow.state:state", "Show the state of a workflow instance, and its transitions."
    ),
    "take": LazyCommand(
        "commands.workflow.state:take",
        "Take a transition of a workflow instance, if its workflow allows that now.",
    ),
}

CONFORMANCE: Commands = {
    "2025-11-25": LazyCommand(
        "commands.conformance:check_v2025",
        "Check a server that implements the tasks of MCP 2025-11-25, over Streamable HTTP or stdio.",
    ),
}


def _lazy_group(commands: Commands, help_text: str, name: str | None = None) -> typer.Typer:
    """Return a group of commands. Its callback makes typer treat it as one, although it registers no commands."""

    class Group(LazyGroup):
        lazy = commands

    group = make_group(Group, name=name, help=help_text, no_args_is_help=True)
    group.callback()(lambda: None)
    return group


PROGRAM: Commands = {
    "call": LazyCommand("commands.calls:call", "Call a tool, and wait for its result."),
    "wait": LazyCommand("commands.calls:wait", "Wait for the result of a saved call, or list the saved calls."),
    "get": LazyCommand("commands.calls:get", "Show the status of a saved call, or its result."),
    "cancel": LazyCommand("commands.calls:cancel", "Cancel a saved call."),
    "answer": LazyCommand("commands.calls:answer", "Answer a question of a saved call."),
    "serve": LazyCommand("commands.serve:serve", "Serve the tools and tasks of a file or a module."),
    "worker": LazyCommand("commands.worker:worker", "Run the tasks of a file or a module, without serving callers."),
    "tools": LazyCommand("commands.tools:tools", "Explain what the calls of each tool become, and why."),
    "demo": LazyCommand("demo.story:demo", "Run a demo: three callers, and a server that is killed."),
    "doctor": LazyCommand("commands.doctor:doctor", "Check the health of a store and its tasks."),
    "migrate": LazyCommand("commands.migrate:migrate", "Create a store's tables, or bring them up to date."),
    "stats": LazyCommand("commands.stats:stats", "Show how long tasks take, and how many fail."),
    "conformance": _lazy_group(CONFORMANCE, "Check a server against the protocol."),
    "workflow": _lazy_group(WORKFLOW, "Check, draw and run workflows, and control their instances."),
    "tasks": _lazy_group(TASKS, "Inspect and control the tasks of a store."),
}

program = _lazy_group(PROGRAM, "Durable, long-running MCP tasks: a ticket now, the result later.", "raincheck")


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"raincheck {version('raincheck')}")
        raise typer.Exit


@program.callback()
def raincheck(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version, and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Durable, long-running MCP tasks: a ticket now, the result later."""
