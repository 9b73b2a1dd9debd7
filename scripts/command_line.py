"""Reference of the CLI commands for the docs: description, options and exit codes of each."""

from collections.abc import Callable, Iterator
from typing import Any

from typer.main import get_command

from raincheck.cli.app import program


def command_line(*names: str) -> str:
    """Return the reference of commands such as `doctor`, or of all commands of a group such as `tasks`."""
    group: Any = get_command(program)
    return "\n\n".join(
        section for name in names for section in _describe(f"raincheck {name}", group.get_command(None, name))
    )


def _describe(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - a class that typer does not export
    subcommands = getattr(command, "lazy", {})
    for subcommand in subcommands:
        yield from _describe(f"{name} {subcommand}", command.get_command(None, subcommand))
    if not subcommands:
        yield "\n\n".join(
            [f"## {name}", _usage(name, command), command.help, "\n".join(_options(command)), _epilog(command)]
        )


def _usage(name: str, command: Any) -> str:  # noqa: ANN401 - as above
    arguments = [parameter.metavar for parameter in command.params if parameter.param_type_name == "argument"]
    return f"`{' '.join([name, *arguments, '[OPTION]...'])}`"


def _options(command: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    for parameter in command.params:
        is_argument = parameter.param_type_name == "argument"
        metavar = "" if is_argument or parameter.is_flag else f" {parameter.metavar or 'NUMBER'}"
        names = parameter.metavar if is_argument else ", ".join(parameter.opts)
        default = (
            f" By default {parameter.default}."
            if isinstance(parameter.default, str | int) and parameter.default is not False
            else ""
        )
        yield f"- `{names}{metavar}`: {parameter.help}{default}"


def _epilog(command: Any) -> str:  # noqa: ANN401 - as above
    """Return the epilog, with its examples as code blocks."""
    parts = [part.strip("\n") for part in command.epilog.strip("\n").split("\n\n")]
    formatted = [f"```sh\n{_without_indent(part)}\n```" if part.startswith("\b") else part for part in parts]
    return "\n\n".join(formatted)


def _without_indent(part: str) -> str:
    return "\n".join(line.removeprefix("  ") for line in part.removeprefix("\b\n").splitlines())


PARTS: dict[str, Callable[..., str]] = {"command-line": command_line}
