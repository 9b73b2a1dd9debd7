"""What looks secret in the command of a server. It is kept, since it takes that to start it again, and never shown."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from raincheck.stores.factory import find_address, make_store
from raincheck.stores.postgres.address import Target
from raincheck.stores.url import MemoryAddress, PostgresAddress, SqliteAddress

HIDDEN = "..."

NAMES = re.compile(
    r"token|secret|passw|passphrase|pwd|credential|auth|bearer|cookie|jwt|(api|access|private)[-_]?key|"
    r"(^|[-_])(key|pass|dsn|pat)$",
    re.IGNORECASE,
)
"""Of options, variables and headers whose values are nobody's business. Better one too many."""

NAMED = re.compile(r"""([\w.-]+)\\*["']?(?:\s*=\s*|\s*:(?!//)\s*|\s+)(?=\S)""")
"""A name, and what stands between it and its value: of an option, a variable, a header or a member of JSON."""

VALUE = re.compile(r"""["']?(?:(?:bearer|basic)\s+)?([^\s"',;&}]+)""", re.IGNORECASE)
"""Of what follows a name, the part that others may repeat."""

SCHEMES = ("bearer", "basic")

USER = re.compile(r"-u|--(proxy-)?user")

INSIDE = (
    re.compile(r"(?<=://)(?:[^\s:/]*:\S+|[^/\s@]+)(?=@)"),
    re.compile(r"(?<=[?&])[^=&\s]+=[^&\s]+"),
    re.compile(r"\b(?:sk-|gh[opsru]_|github_pat_|xox[abprs]-|eyJ)[\w.-]{10,}"),
    re.compile(r"(?:(?<=^-u)|(?<=\s-u)|(?<=-user=)|(?<=-u\s)|(?<=-user\s))[^\s:/]*:\S+"),
)
"""What is secret wherever it stands: who one is in a URL, what is asked there, tokens of well-known services, and a
user with a password."""

SHORTEST_SECRET = 4
"""A word or two is no secret, and would tear holes into what is said."""


@dataclass(slots=True)
class Covered:
    """The words of a command as they may be shown, and what they don't show."""

    words: list[str] = field(default_factory=list[str])
    secrets: list[str] = field(default_factory=list[str])
    _before: str = ""

    @property
    def text(self) -> str:
        return shlex.join(self.words)

    def clean(self, said: str) -> str:
        """What somebody says of it, without what is secret."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= SHORTEST_SECRET:
                said = said.replace(secret, HIDDEN)
        return said

    def add(self, word: str) -> None:
        before, self._before = self._before, word
        if _names_secret(before) and not word.startswith("--"):
            self.words.append(self._hidden(word))
            return
        if USER.fullmatch(before) and ":" in word:
            self.words.append(self._hidden(word))
            return
        # All that follows a name, as it is. What is shown of the rest is without what is secret wherever it stands.
        self._hidden(word[_end_of_name(word) :])
        for secret in INSIDE:
            word = secret.sub(lambda found: self._hidden(found[0]), word)
        end = _end_of_name(word)
        self.words.append(word if end == len(word) else f"{word[:end]}{HIDDEN}")

    def _hidden(self, secret: str) -> str:
        value = VALUE.match(secret)
        self.secrets += [secret, secret.partition(":")[2], *([] if value is None else [value[1]])]
        return HIDDEN


def _names_secret(word: str) -> bool:
    """Whether what is secret is the next word."""
    if word.lower() in SCHEMES:
        return True
    is_name = (word.startswith("-") and "=" not in word) or word.endswith((":", "="))
    return is_name and NAMES.search(word.rstrip(":=")) is not None


def _end_of_name(word: str) -> int:
    """Where something secret begins, by the name before it; the end, if there is none."""
    return next((found.end() for found in NAMED.finditer(word) if NAMES.search(found[1])), len(word))


def cover(words: Sequence[str]) -> Covered:
    """A command, word by word."""
    covered = Covered()
    for word in words:
        covered.add(word)
    return covered


def shown_server(name: str) -> str:
    """The name of a server, as it is in a book, without what is secret in it."""
    try:
        words = shlex.split(name)
    except ValueError:
        # No command of ours: those can be split.
        return name
    match words:
        case ["cd", folder, "&&", *command]:
            return f"cd {shlex.quote(folder)} && {cover(command).text}"
        case _:
            return name


IS_DATABASE = re.compile("postgres(ql)?:", re.IGNORECASE)


def find_target(name: str | os.PathLike[str] | None) -> "Target | None":
    """The database that a store of this name is in; None if it is in none.

    Raises:
        ConfigurationError: its name can't be understood, or what it needs is not installed.
    """
    address = find_address(name)
    if not isinstance(address, PostgresAddress):
        return None
    # It says what to install.
    make_store(name)
    from raincheck.stores.postgres import parse_url

    return parse_url(address.url)


def shown_store(name: str | os.PathLike[str] | None) -> str:
    """Where the store of this name is, for whoever reads.

    Raises:
        ConfigurationError: its name can't be understood.
    """
    address = find_address(name)
    match address:
        case MemoryAddress():
            return "memory:"
        case SqliteAddress(path):
            return str(path.absolute())
        case PostgresAddress():
            target = find_target(name)
            return "" if target is None else target.shown


def typed_store(name: str) -> str:
    """A store as it is named in a command that somebody may type: without a password."""
    if not IS_DATABASE.match(name):
        return name
    parts = urlsplit(name)
    who, at, where = parts.netloc.rpartition("@")
    user, colon, _ = who.partition(":")
    if "@" in parts.path or (not at and ":" in where and not where.rpartition(":")[2].isdigit()):
        # Not where it belongs: a password with a slash in it, perhaps.
        return f"{parts.scheme}://{HIDDEN}"
    parameters = [
        (key, HIDDEN if NAMES.search(key) else value) for key, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    hidden = f"{user}{colon}{HIDDEN if colon else ''}{at}{where}"
    # Not by `urlunsplit`, which leaves out the slashes before a name that is not there.
    query = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    return f"{parts.scheme}://{hidden}{parts.path}{query}"
