"""What looks secret in the command of a server. It is kept, since it takes that to start it again, and never shown."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

HIDDEN = "..."

NAMES = re.compile(
    r"token|secret|passw|passphrase|pwd|credential|auth|bearer|(api|access|private)[-_]?key|(^|[-_])(key|pass|dsn)$",
    re.IGNORECASE,
)
"""Of options, variables and headers whose values are nobody's business. Better one too many."""

PAIR = re.compile(r"(-*[\w.-]+)(=|:\s*)(.+)", re.DOTALL)

INSIDE = (
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),
    re.compile(r"(?<=[?&])[^=&\s]+=[^&\s]+"),
    re.compile(r"\b(?:sk-|gh[opsru]_|github_pat_|xox[abprs]-|eyJ)[\w.-]{10,}"),
)
"""What is secret wherever it stands: who one is in a URL, what is asked there, and tokens of well-known services."""

SHORTEST_SECRET = 4
"""A word or two is no secret, and would tear holes into what is said."""


@dataclass(slots=True)
class Covered:
    """The words of a command as they may be shown, and what they don't show."""

    words: list[str] = field(default_factory=list[str])
    secrets: list[str] = field(default_factory=list[str])

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
        pair = PAIR.fullmatch(word)
        if pair is not None and NAMES.search(pair[1]) and not pair[3].startswith("//"):
            self.words.append(f"{pair[1]}{pair[2]}{self._hidden(pair[3])}")
        elif self.words and _names_secret(self.words[-1]) and not word.startswith("-"):
            self.words.append(self._hidden(word))
        else:
            for secret in INSIDE:
                word = secret.sub(lambda found: self._hidden(found[0]), word)
            self.words.append(word)

    def _hidden(self, secret: str) -> str:
        self.secrets.append(secret)
        return HIDDEN


def _names_secret(word: str) -> bool:
    return word.startswith("-") and "=" not in word and NAMES.search(word) is not None


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
