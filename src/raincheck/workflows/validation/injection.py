"""Reading the arguments of a command as its program does.

Programs that take a script, and programs that run another one: which of their arguments those are.

In which arguments of a command no value may be: they would be part of a script, or choose the program.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from raincheck.workflows.expressions.template import is_open

Item: TypeAlias = tuple[int, str]
"""An argument, and its place in the command."""


@dataclass(frozen=True)
class Options:
    """The options of a program, as far as they decide what is its script, or the program behind it."""

    code: str = ""
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
    first_is_code: bool = False
    """Whether the first that is no option is a script, unless an option gave one or a file with one."""
    is_wrapper: bool = False
    """Whether the first that is no option is a program, or an operand before it."""


class OptionReader:
    """Reads arguments as the program does, up to where its own options end."""

    def __init__(self, options: Options, items: list[Item]) -> None:
        self._options = options
        self.rest = list(items)
        """What is not read yet."""
        self._is_code_next = False
        self.is_named = False
        """Whether an option says what to run."""
        self.values: list[Item] = []
        """Values in the place of what is to run, if no option says it."""
        self.is_from_input = False
        """Whether one says that it is on the standard input."""

    def scripts(self) -> Iterator[Item]:
        """The scripts, each with the place of its item."""
        signs = ("-", "+") if self._options.is_shell else ("-",)
        takes_first = self._options.is_wrapper or self._options.first_is_code
        while self.rest:
            place, text = self.rest[0]
            if text in ("-", "--"):
                self.rest.pop(0)
                self.is_from_input |= text == "-"
                break
            if text.startswith(signs):
                self.rest.pop(0)
                yield from self._long(place, text) if text.startswith("--") else self._short(place, text)
            elif text.startswith("{{") and not (self._is_code_next or takes_first):
                # It may stand for an empty list, and what follows is read as if it were not there.
                self.values.append(self.rest.pop(0))
            else:
                break
        if (self._options.is_shell and self._is_code_next) or (self._options.first_is_code and not self.is_named):
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
        if is_open(name):
            yield place, text
        elif name in self._options.long_code:
            self.is_named = True
            yield from [(place, value)] if equals else self._next()
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
            self.is_named = True
            yield from [attached] if attached[1] else self._next()
        elif not attached[1]:
            del self.rest[:1]
        if letter in self._options.ending:
            self.rest.clear()
            self.is_named = True


@dataclass(frozen=True)
class Wrapper:
    """A program that runs the command that follows its own arguments."""

    options: Options
    operands: int = 0
    """How many of its own come before the command."""
    takes_assignments: bool = False
    is_shell: bool = False
    """Whether what follows is handed to a shell, or may be."""


def _wrapper(taking: str = "", *long_taking: str, operands: int = 0, is_shell: bool = False) -> Wrapper:
    options = Options(taking=taking, long_taking=long_taking, is_wrapper=True)
    return Wrapper(options, operands, takes_assignments=False, is_shell=is_shell)


INTERPRETERS = (
    (
        re.compile(r"(?:r?bash|[akz]?sh|dash|m?ksh\d*|t?csh)[\d.-]*"),
        Options("c", "oO", long_taking=("rcfile", "init-file"), is_shell=True),
    ),
    (
        re.compile(r"fish"),
        Options("cC", "dDfop", long_code=("command", "init-command"), long_taking=("debug", "features", "profile")),
    ),
    (re.compile(r"(?:python|pypy).*"), Options("c", "WX", ending="cm", long_taking=("check-hash-based-pycs",))),
    (re.compile(r"perl[\d.]*"), Options("eE", "I", "DFMVdimx")),
    (re.compile(r"ruby[\d.]*"), Options("e", "CEIr", "FKix", long_taking=("encoding",))),
    (
        re.compile(r"node(?:js)?[\d.]*"),
        Options(
            "ep",
            "Cr",
            long_code=("eval", "print"),
            long_taking=("require", "import", "conditions", "loader", "experimental-loader", "input-type"),
        ),
    ),
    (re.compile(r"php[\d.]*"), Options("rBRE", "cdz", ending="f")),
    (re.compile(r"lua(?:jit)?[\d.]*"), Options("e", "l")),
    (re.compile(r"[gmn]?awk"), Options("e", "Fv", ending="f", long_taking=("assign",), first_is_code=True)),
    (re.compile(r"g?sed"), Options("e", "l", ending="f", long_code=("expression",), first_is_code=True)),
)
"""Patterns for names, and where scripts are among the arguments."""

ENV = Wrapper(
    Options("S", "uC", long_code=("split-string",), long_taking=("unset", "chdir"), is_wrapper=True),
    takes_assignments=True,
)
_SUDO = ("user", "group", "host", "prompt", "chdir", "chroot", "close-from", "command-timeout", "other-user")
_XARGS = ("arg-file", "delimiter", "max-args", "max-chars", "max-lines", "max-procs")

WRAPPERS = {
    "env": ENV,
    "sudo": Wrapper(Options(taking="CDghpRrTtUu", long_taking=_SUDO, is_wrapper=True), takes_assignments=True),
    "doas": _wrapper("Cu"),
    "timeout": _wrapper("ks", "signal", "kill-after", operands=1),
    "nice": _wrapper("n", "adjustment"),
    "ionice": _wrapper("cnPpu", "class", "classdata"),
    "stdbuf": _wrapper("eio", "input", "output", "error"),
    "time": _wrapper("fo", "format", "output"),
    "xargs": _wrapper("adEILnPs", *_XARGS),
    "chroot": _wrapper(operands=1),
    "taskset": _wrapper(operands=1),
    "chrt": _wrapper("DPT", operands=1),
    "strace": _wrapper("abeEIoOpPsSuX"),
    "nsenter": _wrapper("tSG", "target", "setuid", "setgid"),
    **{name: _wrapper() for name in ("nohup", "setsid", "unshare", "busybox", "toybox", "command", "exec")},
    "flock": _wrapper("wE", "wait", "timeout", "conflict-exit-code", operands=1, is_shell=True),
    "ssh": _wrapper("BbcDEeFIiJLlmOopQRSWw", operands=1, is_shell=True),
    "watch": _wrapper("n", "interval", is_shell=True),
    **{name: _wrapper(is_shell=True) for name in ("su", "runuser", "parallel", "eval", "script")},
}

STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""Names of the standard input."""

RUNS_NEXT = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""Arguments of `find` after which there is a command."""


def options_of(program: str) -> Options | None:
    """Those of a program that takes a script."""
    name = program.rpartition("/")[2]
    return next((options for names, options in INTERPRETERS if names.fullmatch(name)), None)


PASTED = (
    "values must not become part of a script: use `shell:` with `env:`, or pass the value as a further argument "
    "after a constant script"
)
READ = "values must not become a script, and this program reads its script from there: give it a constant one"
CHOSEN = "callers must not choose the program: make it constant"

INPUT = -1
"""The place of what a command reads from its standard input."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ONLY_A_VALUE = re.compile(r"{{.*}}", re.DOTALL)


def find_pasted(argv: Sequence[str], stdin: str = "") -> Iterator[tuple[int, str]]:
    """The places of values that would be part of a script or choose the program, and what to do about each."""
    for place, message in _command(list(enumerate(argv))):
        if place != INPUT or is_open(stdin):
            yield place, message


def _command(items: list[Item]) -> Iterator[tuple[int, str]]:
    if not items:
        return
    name = items[0][1].rpartition("/")[2]
    if name in WRAPPERS:
        yield from _behind(WRAPPERS[name], items[1:])
    if name == "find":
        for number, (_, text) in enumerate(items):
            if text in RUNS_NEXT:
                yield from _command(items[number + 1 :])
    options = options_of(name)
    if options is None:
        return
    reading = OptionReader(options, items[1:])
    scripts = list(reading.scripts())
    yield from ((place, PASTED) for place, text in scripts if is_open(text))
    if scripts or reading.is_named:
        return
    files = [] if reading.is_from_input else [*reading.values, *reading.rest[:1]]
    yield from ((place, CHOSEN) for place, text in files if is_open(text))
    if not files or files[-1][1] in STDIN:
        yield INPUT, READ


def _behind(wrapper: Wrapper, items: list[Item]) -> Iterator[tuple[int, str]]:
    reading = OptionReader(wrapper.options, items)
    for place, text in reading.scripts():
        # What `env` splits is read in the place of its option, again with options first.
        if is_open(text):
            yield place, PASTED
        else:
            yield from _behind(ENV, [*((place, word) for word in _words(text)), *reading.rest])
        return
    operands, rest = reading.rest[: wrapper.operands], reading.rest[wrapper.operands :]
    # One that is nothing but a value may be a list, whose next item would be the program.
    yield from ((place, CHOSEN) for place, text in operands if _ONLY_A_VALUE.fullmatch(text))
    if wrapper.is_shell:
        yield from ((place, PASTED) for place, text in rest if is_open(text))
        return
    while wrapper.takes_assignments and rest and _ASSIGNMENT.match(rest[0][1]):
        rest.pop(0)
    if rest and is_open(rest[0][1]):
        yield rest[0][0], CHOSEN
    yield from _command(rest)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
