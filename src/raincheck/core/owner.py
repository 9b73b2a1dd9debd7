"""Whom a task belongs to, and what a reader may see."""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from raincheck.errors import TooLarge

NAME_LIMIT = 1_024


class OwnerKind(StrEnum):
    """How an owner became known."""

    TOKEN = "token"  # noqa: S105 - a kind of owner, not a secret
    """Issuer and subject of a verified token."""
    CLIENT = "client"
    """Client id of a verified token that names no subject."""
    HEADER = "header"
    """Keyed hash of an `Authorization` header that nobody verifies."""
    LOCAL = "local"
    """Whoever may use this machine's stdio or Unix socket."""
    SESSION = "session"
    """Anonymous, told apart by session."""
    ANONYMOUS = "anonymous"
    """Nobody in particular: holding a task's id is the right to it, and nothing is ever listed."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a task belongs to: a kind and its names, in any characters.

    `key` is the one spelling that stores compare. It is a JSON array in ASCII, so no character in a name can make two
    owners collide or trip a database.
    """

    kind: OwnerKind
    names: tuple[str, ...] = ()
    key: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in self.names:
            if len(name) > NAME_LIMIT:
                raise TooLarge("an owner's name", len(name), NAME_LIMIT, "characters")
        object.__setattr__(self, "names", tuple(map(_with_pairs_joined, self.names)))
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
        """Whether this owner can be told apart well enough to be shown a list."""
        return self.kind is not OwnerKind.ANONYMOUS


def _with_pairs_joined(name: str) -> str:
    """Two surrogates that make one character are that character: in JSON nobody could tell them apart."""
    return name.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Scope:
    """What a reader may see. Every read takes one; there is no default that sees everything."""

    namespace: str | None
    owner: Owner | None

    @classmethod
    def of(cls, namespace: str, owner: Owner) -> Self:
        """One owner's tasks on one server: what a request may see."""
        return cls(namespace, owner)

    @classmethod
    def within(cls, namespace: str) -> Self:
        """Every owner's tasks on one server: what its workers may see."""
        return cls(namespace, None)

    @classmethod
    def everything(cls) -> Self:
        """All tasks in the store: what an operator may see. Never made from a request."""
        return cls(None, None)

    def covers(self, namespace: str, owner: Owner) -> bool:
        return self.namespace in (None, namespace) and self.owner in (None, owner)

    @property
    def may_list(self) -> bool:
        return self.owner is None or self.owner.may_list
