"""Programs that take a script as an argument: in which of their arguments no value may be."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Item: TypeAlias = tuple[int, str]
"""An argument, and its place in the command."""

PASTED = (
    "values must not become part of a script: use `shell:` with `env:`, or pass the value as a further argument "
    "after a constant script"
)
READ = "values must not become a script, and this program reads its script from there: give it a constant one"
CHOSEN = "callers must not choose the program: make it constant"


@dataclass(frozen=True)
class _Options:
    """The options of a program, as far as they decide what is its script."""

    code: str
    """Letters whose argument is a script."""
    taking: str = ""
    """Letters that take an argument, the rest of the item or else the next one."""
    attached: str = ""
    """Letters that take the rest of the item, if there is any."""
    ending: str = ""
    """Letters whose argument is the program, so that what follows is for that."""
    long_code: tuple[str, ...] = ()
    long_taking: tuple[str, ...] = ()
    is_shell: bool = False
    """Whether the script is the first that is no option, wherever the letter was, and `o` takes the next item."""


_SHELL = _Options("c", "oO", long_taking=("rcfile", "init-file"), is_shell=True)
_PROGRAMS = (
    (re.compile(r"(?:r?bash|[akz]?sh|dash|m?ksh\d*|t?csh)[\d.-]*"), _SHELL),
    (
        re.compile(r"fish"),
        _Options("cC", "dDfop", long_code=("command", "init-command"), long_taking=("debug", "features", "profile")),
    ),
    (re.compile(r"(?:python|pypy).*"), _Options("c", "WX", ending="cm", long_taking=("check-hash-based-pycs",))),
    (re.compile(r"perl[\d.]*"), _Options("eE", "I", "DFMVdimx")),
    (re.compile(r"ruby[\d.]*"), _Options("e", "CEIr", "FKix", long_taking=("encoding",))),
    (
        re.compile(r"node(?:js)?[\d.]*"),
        _Options(
            "ep",
            "Cr",
            long_code=("eval", "print"),
            long_taking=("require", "import", "conditions", "loader", "experimental-loader", "input-type"),
        ),
    ),
)
_ENV = _Options("S", "uC", long_code=("split-string",), long_taking=("unset", "chdir"))
_WRAPPERS = re.compile(
    "busybox|chroot|doas|flock|ionice|nice|nohup|parallel|runuser|setpriv|setsid|stdbuf|su|sudo|time|timeout|toybox|"
    "unshare|watch|xargs"
)
"""Programs that run the command that follows them."""
INPUT = -1
"""The place of what a command reads from its standard input."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def find_pasted(argv: Sequence[str], stdin: str = "") -> Iterator[tuple[int, str]]:
    """The places of values that would be part of a script or choose the program, and what to do about each."""
    for place, message in _command(list(enumerate(argv))):
        if place != INPUT or _is_open(stdin):
            yield place, message


def _command(items: list[Item]) -> Iterator[tuple[int, str]]:
    if not items:
        return
    name = items[0][1].rpartition("/")[2]
    if name == "env":
        yield from _behind_env(items[1:])
    if _WRAPPERS.fullmatch(name):
        # Their options are many, so every program of which there is a name is taken to be run.
        for number, (_, text) in enumerate(items[1:], 1):
            if _options_of(text) is not None:
                yield from _command(items[number:])
                return
    options = _options_of(name)
    if options is not None:
        reading = _Reading(options, items[1:])
        scripts = list(reading.scripts())
        yield from ((place, PASTED) for place, text in scripts if _is_open(text))
        if not scripts and (reading.is_from_input or not (reading.rest or reading.is_named)):
            yield INPUT, READ


def _options_of(program: str) -> "_Options | None":
    """Those of a program that takes a script."""
    name = program.rpartition("/")[2]
    return next((options for names, options in _PROGRAMS if names.fullmatch(name)), None)


def _behind_env(items: list[Item]) -> Iterator[tuple[int, str]]:
    reading = _Reading(_ENV, items)
    for place, text in reading.scripts():
        # What it splits is read in the place of its option, again with options first.
        if _is_open(text):
            yield place, PASTED
        else:
            yield from _behind_env([*((place, word) for word in _words(text)), *reading.rest])
        return
    rest = reading.rest
    while rest and _ASSIGNMENT.match(rest[0][1]):
        rest.pop(0)
    if rest and _is_open(rest[0][1]):
        yield rest[0][0], CHOSEN
    yield from _command(rest)


class _Reading:
    """Reads arguments as the program does, up to where its own options end."""

    def __init__(self, options: _Options, items: list[Item]) -> None:
        self._options = options
        self.rest = list(items)
        """What is not read yet."""
        self._is_code_next = False
        self.is_named = False
        """Whether an option says what to run."""
        self.is_from_input = False
        """Whether one says that it is on the standard input."""

    def scripts(self) -> Iterator[Item]:
        """The scripts, each with the place of its item."""
        signs = ("-", "+") if self._options.is_shell else ("-",)
        while self.rest:
            place, text = self.rest[0]
            if text in ("-", "--"):
                self.rest.pop(0)
                self.is_from_input |= text == "-"
                break
            if text.startswith(signs):
                self.rest.pop(0)
                yield from self._long(place, text) if text.startswith("--") else self._short(place, text)
            elif text.startswith("{{") and not self._is_code_next and self._options is not _ENV:
                # It may stand for an empty list, and what follows is read as if it were not there.
                self.rest.pop(0)
            else:
                break
        if self._options.is_shell and self._is_code_next:
            yield from self._next()

    def _next(self) -> Iterator[Item]:
        """The next item, and what may be it if a value stands for an empty list."""
        while self.rest:
            place, text = self.rest.pop(0)
            yield place, text
            if not text.startswith("{{"):
                return

    def _long(self, place: int, text: str) -> Iterator[Item]:
        name, equals, value = text[2:].partition("=")
        if _is_open(name):
            yield place, text
        elif equals and name in self._options.long_code:
            yield place, value
        elif name in self._options.long_code:
            yield from self._next()
        elif not equals and name in self._options.long_taking:
            del self.rest[:1]

    def _short(self, place: int, text: str) -> Iterator[Item]:
        constant = text.split("{{")[0]
        if self._options.is_shell:
            self._is_code_next |= any(letter in self._options.code for letter in constant)
            self.is_from_input |= "s" in constant
            del self.rest[: sum(letter in self._options.taking for letter in constant)]
        else:
            for at, letter in enumerate(constant[1:], 1):
                if letter in self._options.code + self._options.ending + self._options.taking:
                    yield from self._argument(letter, (place, text[at + 1 :]))
                    return
                if letter in self._options.attached:
                    return
        if constant != text:
            # The value could add the letter.
            yield place, text

    def _argument(self, letter: str, attached: Item) -> Iterator[Item]:
        if letter in self._options.code:
            yield from [attached] if attached[1] else self._next()
        elif not attached[1]:
            del self.rest[:1]
        if letter in self._options.ending:
            self.rest.clear()
            self.is_named = True


def _is_open(text: str) -> bool:
    return "{{" in text


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
