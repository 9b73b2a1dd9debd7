"""What is wrong with the servers that a file names."""

from collections.abc import Iterator
from pathlib import Path

from raincheck.workflows.common_model import FileModel, ServerModel
from raincheck.workflows.expression_checks import Names, check_text
from raincheck.workflows.step_checks import is_command, why_no_command
from raincheck.workflows.yaml_values import Route


def check_servers(model: FileModel, folder: Path) -> Iterator[tuple[Route, str]]:
    """What is wrong with each, and where."""
    nothing = frozenset[str]()
    names = Names(nothing, nothing, nothing, frozenset(model.allow.env), roots=frozenset({"env"}))
    for name, server in model.servers.items():
        for route, message in _check(server, names, folder):
            yield ("servers", name, *route), message


def _check(server: ServerModel, names: Names, folder: Path) -> Iterator[tuple[Route, str]]:
    for header, value in server.headers.items():
        for message in check_text(value, names):
            yield ("headers", header), message
    if server.url is not None and not server.url.startswith(("http://", "https://")):
        yield ("url",), "a URL begins with https:// or http://"
    if server.command is not None and not is_command(server.command[0], folder):
        yield ("command",), why_no_command(server.command[0], folder)
