"""What the workflows of a file stand on: where they are, and what they may reach."""

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from raincheck.errors import InvalidValue
from raincheck.workflows.parsing.models import FileModel, Properties, ServerModel

_HOST = re.compile(r"(?P<host>\[[^\[\]]+\]|[^\[\]:]+)(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[^\x00-\x20:/?#@*%\\\[\]]+")


@dataclass(frozen=True)
class Surroundings:
    """What a file allows its workflows."""

    file: Path
    folder: Path
    """That of the file, without symbolic links."""
    hosts: frozenset[str] = frozenset()
    folders: tuple[Path, ...] = ()
    """Where commands may run besides: whole paths without symbolic links."""
    env: frozenset[str] = frozenset()
    servers: Mapping[str, ServerModel] = field(default_factory=dict[str, ServerModel])
    workflows: Mapping[str, Properties | None] = field(default_factory=dict[str, Properties | None])
    """All that are loaded together, by name, with what they take; None where that is not known."""

    @classmethod
    def of(cls, file: Path, model: FileModel, workflows: Mapping[str, Properties | None]) -> "Surroundings":
        folder = file.resolve().parent
        return cls(
            file,
            folder,
            frozenset(_hosts(model.allow.hosts)),
            tuple(_folders(model.allow.folders, folder)),
            frozenset(model.allow.env),
            model.servers,
            workflows,
        )

    def variables(self) -> dict[str, str]:
        """The variables of the environment that expressions may read, as far as they are set."""
        return {name: os.environ[name] for name in sorted(self.env) if name in os.environ}

    def allows_host(self, host: str, port: int | None) -> bool:
        try:
            host = _plain_host(host)
        except InvalidValue:
            return False
        return host in self.hosts or (port is not None and f"{host}:{port}" in self.hosts)

    def allows_folder(self, folder: Path) -> bool:
        """Whether a command may run there. The path must be whole and without symbolic links."""
        return any(folder.is_relative_to(one) for one in (self.folder, *self.folders))


def host_of(said: str) -> str:
    """A host as the file allows it, written in the one way that it is compared: `name`, `name:1`, `[::1]`, `[::1]:1`.

    Raises:
        InvalidValue: no request can have such a host.
    """
    parts = _HOST.fullmatch(f"[{said}]" if said.count(":") > 1 and not said.startswith("[") else said)
    if parts is None or int(parts["port"] or 1) not in range(1, 65_536):
        raise InvalidValue(f"{said!r} is no host: write it as name, name:port, [::1] or [::1]:port")
    host = _plain_host(parts["host"])
    if not host.startswith("[") and not _NAME.fullmatch(host):
        raise InvalidValue(f"{said!r} can't be the host of a URL: name each host, without patterns")
    return host if parts["port"] is None else f"{host}:{int(parts['port'])}"


def _plain_host(host: str) -> str:
    """A name in lower case, or an IPv6 address in its shortest form."""
    host = host.lower().removeprefix("[").removesuffix("]")
    if ":" not in host:
        return host
    try:
        return f"[{ipaddress.IPv6Address(host)}]"
    except ValueError as error:
        raise InvalidValue(f"{host!r} is no IPv6 address") from error


def _hosts(said: Iterable[str]) -> Iterator[str]:
    for one in said:
        # What is no host is told where the file is checked, and allows nothing.
        with suppress(InvalidValue):
            yield host_of(one)


def _folders(said: Iterable[str], folder: Path) -> Iterator[Path]:
    return ((folder / one).resolve() for one in said)


def common_hosts(one: Iterable[str], other: Iterable[str]) -> frozenset[str]:
    """What both of two lists of hosts allow. A host without a port is allowed on all of them."""
    first, second = frozenset(_hosts(one)), frozenset(_hosts(other))
    return frozenset(_within(first, second)) | frozenset(_within(second, first))


def _within(hosts: Iterable[str], others: frozenset[str]) -> Iterator[str]:
    for host in hosts:
        parts = _HOST.fullmatch(host)
        if host in others or (parts is not None and parts["host"] in others):
            yield host


def common_folders(one: Iterable[str], other: Iterable[str], folder: Path) -> frozenset[Path]:
    """What both of two lists of folders allow, with all that is in them."""
    first, second = frozenset(_folders(one, folder)), frozenset(_folders(other, folder))
    both = ((a, b) for a in first for b in second)
    return frozenset(a if a.is_relative_to(b) else b for a, b in both if a.is_relative_to(b) or b.is_relative_to(a))
