"""What the workflows of a file stand on: where they are, and what they may reach."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raincheck.workflows.common_model import FileModel, ServerModel


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
    workflows: frozenset[str] = frozenset()
    """The names of all workflows that are loaded together."""

    @classmethod
    def of(cls, file: Path, model: FileModel, workflows: frozenset[str]) -> "Surroundings":
        folder = file.resolve().parent
        return cls(
            file,
            folder,
            frozenset(host.lower() for host in model.allow.hosts),
            tuple((folder / one).resolve() for one in model.allow.folders),
            frozenset(model.allow.env),
            model.servers,
            workflows,
        )

    def variables(self) -> dict[str, str]:
        """The variables of the environment that expressions may read, as far as they are set."""
        return {name: os.environ[name] for name in sorted(self.env) if name in os.environ}

    def allows_host(self, host: str, port: int | None) -> bool:
        host = host.lower()
        return host in self.hosts or (port is not None and f"{host}:{port}" in self.hosts)

    def allows_folder(self, folder: Path) -> bool:
        """Whether a command may run there. The path must be whole and without symbolic links."""
        return any(folder.is_relative_to(one) for one in (self.folder, *self.folders))
