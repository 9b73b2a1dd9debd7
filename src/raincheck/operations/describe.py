"""Format records for terminals and shells, with untrusted text escaped."""

import json
import os
import re
import shlex
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from raincheck.core.owner import Owner, OwnerKind
from raincheck.core.records import Task, Tool
from raincheck.wire.fallback_text import clip_text, format_duration

if TYPE_CHECKING:
    # Its driver is optional.
    from raincheck.stores.postgres.address import DatabaseTarget

REDACTED = "..."

SECRET_NAMES = re.compile(
    r"token|secret|passw|passphrase|pwd|credential|auth|bearer|cookie|jwt|(api|access|private)[-_]?key|"
    r"(^|[-_])(key|pass|dsn|pat)$",
    re.IGNORECASE,
)
"""Names of options, variables and headers whose values are redacted. It matches too much rather than too little."""

NAMED = re.compile(r"""([\w.-]+)\\*["']?(?:\s*=\s*|\s*:(?!//)\s*|\s+)(?=\S)""")
"""A name and the separator before its value: of an option, a variable, a header or a member of JSON."""

VALUE = re.compile(r"""["']?(?:(?:bearer|basic)\s+)?([^\s"',;&}]+)""", re.IGNORECASE)
"""The part of the text after a name that other messages may repeat."""

SCHEMES = ("bearer", "basic")

USER = re.compile(r"-u|--(proxy-)?user")

SECRET_PATTERNS = (
    re.compile(r"(?<=://)(?:[^\s:/]*:\S+|[^/\s@]+)(?=@)"),
    re.compile(r"(?<=[?&])[^=&\s]+=[^&\s]+"),
    re.compile(r"\b(?:sk-|gh[opsru]_|github_pat_|xox[abprs]-|eyJ)[\w.-]{10,}"),
    re.compile(r"(?:(?<=^-u)|(?<=\s-u)|(?<=-user=)|(?<=-u\s)|(?<=-user\s))[^\s:/]*:\S+"),
)
"""Secrets wherever they occur.

The user of a URL, its query values, tokens of well-known services, and a user with a password.
"""

MIN_SECRET_LENGTH = 4
"""Shorter secrets are not replaced in messages: a short word is hardly a secret, and replacing it would garble them."""


class RedactedCommand:
    """The words of a command with its secrets redacted, and the secrets themselves."""

    def __init__(self, words: Sequence[str]) -> None:
        self.secrets: list[str] = []
        self.words = [self._redact_word(word, previous) for previous, word in pairwise(["", *words])]

    @property
    def text(self) -> str:
        return shlex.join(self.words)

    def redact(self, text: str) -> str:
        """Return a text about the command without its secrets."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= MIN_SECRET_LENGTH:
                text = text.replace(secret, REDACTED)
        return text

    def _redact_word(self, word: str, previous: str) -> str:
        is_secret = _names_secret(previous) and not word.startswith("--")
        if is_secret or (USER.fullmatch(previous) and ":" in word):
            return self._redact(word)
        # First record everything after a name, as written. Then redact the secrets that occur anywhere in the rest.
        self._redact(word[_secret_start(word) :])
        for secret in SECRET_PATTERNS:
            word = secret.sub(lambda found: self._redact(found[0]), word)
        end = _secret_start(word)
        return word if end == len(word) else f"{word[:end]}{REDACTED}"

    def _redact(self, secret: str) -> str:
        value = VALUE.match(secret)
        self.secrets += [secret, secret.partition(":")[2], *([] if value is None else [value[1]])]
        return REDACTED


def _names_secret(word: str) -> bool:
    """Return whether the next word is a secret."""
    if word.lower() in SCHEMES:
        return True
    is_name = (word.startswith("-") and "=" not in word) or word.endswith((":", "="))
    return is_name and SECRET_NAMES.search(word.rstrip(":=")) is not None


def _secret_start(word: str) -> int:
    """Return where a secret starts, by the name before it; the end of the word if there is none."""
    return next((found.end() for found in NAMED.finditer(word) if SECRET_NAMES.search(found[1])), len(word))


def redact_server(name: str) -> str:
    """Return the name of a server, as saved calls have it, without its secrets."""
    try:
        words = shlex.split(name)
    except ValueError:
        # Not a command that raincheck saved: those can be split.
        return name
    match words:
        case ["cd", folder, "&&", *command]:
            return f"cd {shlex.quote(folder)} && {RedactedCommand(command).text}"
        case _:
            return name


IS_DATABASE = re.compile("postgres(ql)?:", re.IGNORECASE)


def find_database(url: str | os.PathLike[str] | None) -> "DatabaseTarget | None":
    """Return the database of the store at this URL; None if the store is not in a database.

    Raises:
        ConfigurationError: the URL is invalid, or the driver is not installed.
    """
    # Imported here: most callers describe tasks, and need no store.
    from raincheck.stores.factory import make_store, resolve_address
    from raincheck.stores.url import PostgresAddress

    address = resolve_address(url)
    if not isinstance(address, PostgresAddress):
        return None
    # This raises an error that says what to install.
    make_store(url)
    from raincheck.stores.postgres import parse_url

    return parse_url(address.url)


def describe_store(url: str | os.PathLike[str] | None) -> str:
    """Return the location of the store at this URL, for display.

    Raises:
        ConfigurationError: the URL is invalid.
    """
    from raincheck.stores.factory import resolve_address
    from raincheck.stores.url import MemoryAddress, PostgresAddress, SqliteAddress

    address = resolve_address(url)
    match address:
        case MemoryAddress():
            return "memory:"
        case SqliteAddress(path):
            return str(path.absolute())
        case PostgresAddress():
            target = find_database(url)
            return "" if target is None else target.display_url


def redact_store_url(url: str) -> str:
    """Return a store's URL for a command to type, without its password."""
    if not IS_DATABASE.match(url):
        return url
    parts = urlsplit(url)
    user_info, at_sign, host = parts.netloc.rpartition("@")
    user, colon, _ = user_info.partition(":")
    if "@" in parts.path or (not at_sign and ":" in host and not host.rpartition(":")[2].isdigit()):
        # A password is not in its usual place, perhaps because it contains a slash.
        return f"{parts.scheme}://{REDACTED}"
    parameters = [
        (key, REDACTED if SECRET_NAMES.search(key) else value)
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    redacted = f"{user}{colon}{REDACTED if colon else ''}{at_sign}{host}"
    # `urlunsplit` would drop the slashes before an empty host.
    query = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    return f"{parts.scheme}://{redacted}{parts.path}{query}"


LINE_BREAKS = "\n\t"

SHORT_ID_LENGTH = 20
"""The characters of an id that are shown where space is short: its time, and enough random digits to distinguish it."""

TASK_ID_PATTERN = re.compile("(?!000)[0-9a-f]{44}")
"""The ids that raincheck creates. Ids of another form may share a prefix, so they are shown in full."""


def printable(text: str) -> str:
    """Return the text as one line. Invisible characters, and those that would move the cursor, are escaped."""
    return printable_lines(" ".join(text.split()))


def printable_lines(text: str) -> str:
    """Escape the text like `printable`, but keep its lines."""
    return "".join(
        character if character.isprintable() or character in LINE_BREAKS else _escaped(character) for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def format_json(value: Any, *, indent: int | None = 2) -> str:  # noqa: ANN401 - any JSON
    """Format a value as JSON, and escape the same characters as `printable` does. Without an indent it is one line."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1] for character in text
    )


def format_id(task_id: str) -> str:
    """Return enough of an id to find its task."""
    return printable(task_id[:SHORT_ID_LENGTH] if TASK_ID_PATTERN.fullmatch(task_id) else task_id)


def format_command(command: str, task_id: str, *options: str) -> str:
    """Return a command about a task, quoted for a shell."""
    name = task_id[:SHORT_ID_LENGTH] if TASK_ID_PATTERN.fullmatch(task_id) else _typeable(task_id)
    end = ["--"] if name.startswith("-") else []
    return f"raincheck {command} {shlex.join([*options, *end, name])}"


def _typeable(task_id: str) -> str:
    """Return an id up to its first character that can't be typed. A prefix is enough to find most tasks."""
    return task_id if task_id.isprintable() else re.split(r"[^ -~]", task_id, maxsplit=1)[0]


def format_owner(owner: Owner) -> str:
    """Format an owner with its kind and all of its names."""
    return printable(" ".join([owner.kind, *owner.names]))


def format_owner_name(owner: Owner) -> str:
    """Format an owner briefly: a subject or a client's id, else the kind. The issuer does not fit into a table."""
    match owner.kind:
        case OwnerKind.TOKEN:
            return printable(owner.names[-1])
        case OwnerKind.CLIENT:
            return printable(owner.names[0])
        case _:
            return str(owner.kind)


def format_tool(tool: Tool) -> str:
    """Format a tool, with its version if it is not the default."""
    return printable(tool.name if tool.version == "1" else f"{tool.name} (version {tool.version})")


def format_task_progress(task: Task, max_length: int = 120) -> str:
    """Format a task's progress and status message."""
    parts: list[str] = []
    if task.progress is not None and not task.is_terminal:
        total = task.progress.total
        parts.append(f"{task.progress.done:g}" + ("" if total is None else f" of {total:g}"))
    if task.pausing:
        parts.append("to be paused")
    if task.is_error:
        parts.append("ended with an error")
    if task.status_message and task.status_message != task.phase:
        parts.append(task.status_message)
    return printable(clip_text(", ".join(parts), max_length))


def format_age(moment: datetime, now: datetime) -> str:
    """Format the time since a moment, or until it."""
    seconds = (now - moment).total_seconds()
    return f"{format_duration(seconds)} ago" if seconds >= 0 else f"in {format_duration(-seconds)}"


def format_moment(moment: datetime, now: datetime) -> str:
    """Format a moment, and the time since or until it."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC, {format_age(moment, now)}"
