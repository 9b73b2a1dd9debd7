"""The commands of the program as text for the docs: what each does, takes, and ends with."""

from collections.abc import Callable, Iterator
from typing import Any

from typer.main import get_command

from raincheck.cli.app import program


def command_line(*names: str) -> str:
    """What commands such as `doctor`, or all of a group such as `tasks`, take."""
    top: Any = get_command(program)
    return "\n\n".join(part for name in names for part in _about(f"raincheck {name}", top.get_command(None, name)))


def _about(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - of a library that typer keeps to itself
    inner = getattr(command, "lazy", {})
    for word in inner:
        yield from _about(f"{name} {word}", command.get_command(None, word))
    if not inner:
        yield "\n\n".join(
            [f"## {name}", _usage(name, command), command.help, "\n".join(_options(command)), _end(command)]
        )


def _usage(name: str, command: Any) -> str:  # noqa: ANN401 - likewise
    arguments = [one.metavar for one in command.params if one.param_type_name == "argument"]
    return f"`{' '.join([name, *arguments, '[OPTION]...'])}`"


def _options(command: Any) -> Iterator[str]:  # noqa: ANN401 - likewise
    for one in command.params:
        is_argument = one.param_type_name == "argument"
        metavar = "" if is_argument or one.is_flag else f" {one.metavar or 'NUMBER'}"
        names = one.metavar if is_argument else ", ".join(one.opts)
        default = (
            f" By default {one.default}." if isinstance(one.default, str | int) and one.default is not False else ""
        )
        yield f"- `{names}{metavar}`: {one.help}{default}"


def _end(command: Any) -> str:  # noqa: ANN401 - likewise
    """The examples, as they stand, and the sentences around them."""
    parts = [part.strip("\n") for part in command.epilog.strip("\n").split("\n\n")]
    shown = [f"```sh\n{_without_indent(part)}\n```" if part.startswith("\b") else part for part in parts]
    return "\n\n".join(shown)


def _without_indent(part: str) -> str:
    return "\n".join(line.removeprefix("  ") for line in part.removeprefix("\b\n").splitlines())


PARTS: dict[str, Callable[..., str]] = {"command-line": command_line}
