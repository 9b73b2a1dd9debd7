"""The location of a workflow file, and what its workflows may access."""

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
            tuple(_folders(model.allow.folders, folder)),
            frozenset(model.allow.env),
            model.servers,
            workflows,
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables that expressions may read, if they are set."""
        return {name: os.environ[name] for name in sorted(self.env) if name in os.environ}

    def allows_host(self, host: str, port: int | None) -> bool:
        try:
            host = _plain_host(host)
        except InvalidValue:
            return False
        return host in self.hosts or (port is not None and f"{host}:{port}" in self.hosts)

    def allows_folder(self, folder: Path) -> bool:
        """Return whether a command may run in a folder. The path must be absolute, with symbolic links resolved."""
        return any(folder.is_relative_to(allowed) for allowed in (self.folder, *self.folders))


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


def _folders(declared: Iterable[str], folder: Path) -> Iterator[Path]:
    return ((folder / path).resolve() for path in declared)


def intersect_hosts(left: Iterable[str], right: Iterable[str]) -> frozenset[str]:
    """Return the hosts that both lists allow. A host without a port is allowed on all ports."""
    left_hosts, right_hosts = frozenset(_hosts(left)), frozenset(_hosts(right))
    return frozenset(_allowed_by(right_hosts, left_hosts)) | frozenset(_allowed_by(left_hosts, right_hosts))


def _allowed_by(allowed: frozenset[str], hosts: Iterable[str]) -> Iterator[str]:
    for host in hosts:
        parts = _HOST.fullmatch(host)
        if host in allowed or (parts is not None and parts["host"] in allowed):
            yield host


def intersect_folders(left: Iterable[str], right: Iterable[str], folder: Path) -> frozenset[Path]:
    """Return the folders that both lists allow, with everything in them."""
    left_folders, right_folders = frozenset(_folders(left, folder)), frozenset(_folders(right, folder))
    pairs = ((a, b) for a in left_folders for b in right_folders)
    return frozenset(a if a.is_relative_to(b) else b for a, b in pairs if a.is_relative_to(b) or b.is_relative_to(a))
