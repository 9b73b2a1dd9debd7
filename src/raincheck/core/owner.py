"""The owner of a task, and the scope of a reader."""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from raincheck.errors import TooLarge

NAME_LIMIT = 1_024


class OwnerKind(StrEnum):
    """How an owner was identified."""

    TOKEN = "token"  # noqa: S105 - a kind of owner, not a secret
    """Issuer and subject of a verified token."""
    CLIENT = "client"
    """Client id of a verified token that names no subject."""
    HEADER = "header"
    """Keyed hash of an unverified `Authorization` header."""
    LOCAL = "local"
    """Any user of this machine's stdio or Unix socket."""
    SESSION = "session"
    """Anonymous, distinguished by session."""
    ANONYMOUS = "anonymous"
    """Unidentified: possession of a task's id is the right to it, and nothing is ever listed."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a task: a kind and its names, in any characters.

    `key` is the canonical form that stores compare. It is a JSON array in ASCII, so no character in a name can make two
    owners collide or break a database.
    """

    kind: OwnerKind
    names: tuple[str, ...] = ()
    key: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in self.names:
            if len(name) > NAME_LIMIT:
                raise TooLarge("an owner's name", len(name), NAME_LIMIT, "characters")
        object.__setattr__(self, "names", tuple(map(_join_surrogates, self.names)))
        object.__setattr__(self, "key", json.dumps([self.kind, *self.names]))

    @classmethod
    def token(cls, issuer: str, subject: str) -> Self:
        return cls(OwnerKind.TOKEN, (issuer, subject))

    @classmethod
    def client(cls, client_id: str, issuer: str | None = None) -> Self:
        return cls(OwnerKind.CLIENT, (client_id,) if issuer is None else (client_id, issuer))

    @classmethod
    def local(cls) -> Self:
        return cls(OwnerKind.LOCAL)

    @classmethod
    def anonymous(cls) -> Self:
        return cls(OwnerKind.ANONYMOUS)

    @classmethod
    def from_key(cls, key: str) -> Self:
        kind, *names = json.loads(key)
        return cls(OwnerKind(kind), tuple(names))

    @property
    def may_list(self) -> bool:
        """Whether this owner is identified well enough to be shown a list."""
        return self.kind is not OwnerKind.ANONYMOUS


def _join_surrogates(name: str) -> str:
    """Join two surrogates that form one character: in JSON the two forms are indistinguishable."""
    return name.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Scope:
    """The tasks a reader may see. Every read takes a scope; there is no default that sees everything."""

    namespace: str | None
    owner: Owner | None

    @classmethod
    def for_owner(cls, namespace: str, owner: Owner) -> Self:
        """One owner's tasks on one server: the scope of a request."""
        return cls(namespace, owner)

    @classmethod
    def for_namespace(cls, namespace: str) -> Self:
        """Every owner's tasks on one server: the scope of its workers."""
        return cls(namespace, None)

    @classmethod
    def everything(cls) -> Self:
        """All tasks in the store: the scope of an operator. Never created from a request."""
        return cls(None, None)

    def covers(self, namespace: str, owner: Owner) -> bool:
        return self.namespace in (None, namespace) and self.owner in (None, owner)

    @property
    def may_list(self) -> bool:
        return self.owner is None or self.owner.may_list
