"""The location of a workflow file, and what its workflows may access."""

import ipaddress
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from raincheck.errors import InvalidValue
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.template import AllowedNames, check_texts
from raincheck.workflows.parsing.models import FileModel, Properties, ServerModel

MIN_REDACTED_LENGTH = 4
"""Characters that a value needs to be redacted. A shorter one, such as `1` or `yes`, is part of many words."""

_HOST = re.compile(r"(?P<host>\[[^\[\]]+\]|[^\[\]:]+)(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[^\x00-\x20:/?#@*%\\\[\]]+")

INHERITED_VARIABLES = ("PATH", "HOME", "LANG")
"""The environment variables that every command inherits, besides those that the file allows."""


@dataclass(frozen=True)
class Permissions:
    """The permissions that a file grants its workflows."""

    file: Path
    folder: Path
    """The file's folder, with symbolic links resolved."""
    hosts: frozenset[str] = frozenset()
    folders: tuple[Path, ...] = ()
    """Additional folders where commands may run: absolute paths with symbolic links resolved."""
    env: frozenset[str] = frozenset()
    servers: Mapping[str, ServerModel] = field(default_factory=dict[str, ServerModel])
    workflows: Mapping[str, Properties | None] = field(default_factory=dict[str, Properties | None])
    """The input properties of all workflows that are loaded together, by name; None where they are unknown."""

    @classmethod
    def from_model(cls, file: Path, model: FileModel, workflows: Mapping[str, Properties | None]) -> "Permissions":
        folder = file.resolve().parent
        return cls(
            file,
            folder,
            frozenset(_hosts(model.allow.hosts)),
            tuple((folder / path).resolve() for path in model.allow.folders),
            frozenset(model.allow.env),
            model.servers,
            workflows,
        )

    def narrow(self, current: FileModel) -> "Permissions":
        """Return these permissions without those that the file no longer grants."""
        now = Permissions.from_model(self.file, current, self.workflows)
        pairs = [(one, other) for one in self.folders for other in now.folders]
        return replace(
            self,
            hosts=_allowed_by(now.hosts, self.hosts) | _allowed_by(self.hosts, now.hosts),
            # The inner of two nested folders.
            folders=tuple(
                {one for one, other in pairs if one.is_relative_to(other)}
                | {other for one, other in pairs if other.is_relative_to(one)}
            ),
            env=self.env & now.env,
            servers={name: server for name, server in self.servers.items() if now.servers.get(name) == server},
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables that expressions may read, if they are set."""
        return _set_variables(sorted(self.env))

    def command_environment(self) -> dict[str, str]:
        """Return the environment variables that every command inherits, if they are set."""
        return _set_variables((*INHERITED_VARIABLES, *sorted(self.env)))

    def redact(self, message: str, *, is_tail: bool = False) -> str:
        """Replace the values of environment variables that expressions may read by the names of the variables.

        A tail is the end of a longer text. It may start with the rest of a value, so its start is left out.
        """
        forms = {form: name for name, value in self.environment().items() for form in _forms(value)}
        for form in sorted(forms, key=len, reverse=True):
            message = message.replace(form, f"${forms[form]}")
        return message[max(map(len, forms), default=0) :] if is_tail else message

    def allows_host(self, host: str, port: int | None) -> bool:
        try:
            host = _plain_host(host)
        except InvalidValue:
            return False
        return host in self.hosts or (port is not None and f"{host}:{port}" in self.hosts)

    def allows_folder(self, folder: Path) -> bool:
        """Return whether a command may run in a folder. The path must be absolute, with symbolic links resolved."""
        return any(folder.is_relative_to(allowed) for allowed in (self.folder, *self.folders))


def _set_variables(names: Iterable[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _forms(value: str) -> Iterator[str]:
    """Yield the forms in which a message may contain a value: unchanged, each of its lines, and quoted, also twice."""
    for text in {value, value.strip(), *value.splitlines()}:
        if len(text) >= MIN_REDACTED_LENGTH:
            for quoted in _quoted(text):
                yield from _quoted(quoted)


def _quoted(text: str) -> tuple[str, ...]:
    # Python escapes a single quote only in a text that has a double one, too.
    return text, repr(text)[1:-1], repr(f'"{text}')[2:-1], json.dumps(text)[1:-1]


def normalize_host(text: str) -> str:
    """Return an allowed host in the canonical form for comparison: `name`, `name:1`, `[::1]`, `[::1]:1`.

    Raises:
        InvalidValue: no request can have such a host.
    """
    parts = _HOST.fullmatch(f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text)
    if parts is None or int(parts["port"] or 1) not in range(1, 65_536):
        raise InvalidValue(f"{text!r} is not a host: write it as name, name:port, [::1] or [::1]:port")
    host = _plain_host(parts["host"])
    if not host.startswith("[") and not _NAME.fullmatch(host):
        raise InvalidValue(f"{text!r} can't be the host of a URL: name each host, without patterns")
    return host if parts["port"] is None else f"{host}:{int(parts['port'])}"


def _plain_host(host: str) -> str:
    """Return a name in lower case, or an IPv6 address in its shortest form."""
    host = host.lower().removeprefix("[").removesuffix("]")
    if ":" not in host:
        return host
    try:
        return f"[{ipaddress.IPv6Address(host)}]"
    except ValueError as error:
        raise InvalidValue(f"{host!r} is not an IPv6 address: write it as [::1] or [::1]:port") from error


def _hosts(declared: Iterable[str]) -> Iterator[str]:
    for text in declared:
        # An invalid host allows nothing. The validation of the file reports it.
        with suppress(InvalidValue):
            yield normalize_host(text)


def _allowed_by(allowed: frozenset[str], hosts: Iterable[str]) -> frozenset[str]:
    """Return those of the hosts that a list allows. A host without a port is allowed on all ports."""
    parts = {host: _HOST.fullmatch(host) for host in hosts}
    return frozenset(host for host, found in parts.items() if host in allowed or (found and found["host"] in allowed))


def check_permissions(model: FileModel, folder: Path) -> Iterator[Problem]:
    """Yield the errors of the hosts and the servers that a file declares."""
    for index, host in enumerate(model.allow.hosts):
        try:
            normalize_host(host)
        except InvalidValue as error:
            yield ("allow", "hosts", index), str(error)
    names = AllowedNames(env=frozenset(model.allow.env), roots=frozenset({"env"}))
    for name, server in model.servers.items():
        for route, message in _check_server(server, names, folder):
            yield ("servers", name, *route), message


def _check_server(server: ServerModel, names: AllowedNames, folder: Path) -> Iterator[Problem]:
    yield from check_texts(server.headers, ("headers",), names)
    if server.url is not None and not server.url.startswith(("http://", "https://")):
        yield ("url",), "a URL must start with https:// or http://"
    if server.command is not None and not is_command(server.command[0], folder):
        yield ("command",), explain_missing_command(server.command[0], folder)


def is_command(program: str, folder: Path) -> bool:
    """Return whether a command exists."""
    return shutil.which(resolve_program(program, folder)) is not None


def explain_missing_command(program: str, folder: Path) -> str:
    """Return why a command can't be run, and what to do."""
    if "/" not in program:
        return f"there is no command {program!r}: install it, or check PATH"
    if Path(resolve_program(program, folder)).is_file():
        return f"{program!r} is not executable: run chmod +x"
    return f"there is no file {program!r} in {folder}: correct the path"


def resolve_program(program: str, folder: Path) -> str:
    """Return the program to run. A name with a slash is relative to the file's folder, wherever the command runs."""
    return str(folder / program) if "/" in program else program
