"""Find values in the arguments of a command that would be part of a script, or choose the program.

The arguments are read as the program reads them. The tables list programs that take a script and programs that run
another program, with the options that decide which of their arguments these are.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from raincheck.workflows.expressions.template import has_expressions

Item: TypeAlias = tuple[int, str]
"""An argument, after its index in the command."""


@dataclass(frozen=True)
class ProgramOptions:
    """The options of a program that decide which argument is its script, or the program that it runs."""

    code: str = ""
    """Option letters whose argument is a script."""
    taking: str = ""
    """Option letters that take an argument: the rest of the item, or else the next item."""
    attached: str = ""
    """Option letters that take the rest of the item, if there is any."""
    ending: str = ""
    """Option letters whose argument is the program, so that the following items belong to that program."""
    long_code: tuple[str, ...] = ()
    long_taking: tuple[str, ...] = ()
    is_shell: bool = False
    """Whether the script is the first non-option item, wherever the letter was, and `o` takes the next item."""
    first_is_code: bool = False
    """Whether the first non-option item is a script, unless an option gave a script or a file with one."""
    is_wrapper: bool = False
    """Whether the first non-option item is a program, or an operand before it."""


class OptionReader:
    """Reads arguments as the program does, up to the end of its own options."""

    def __init__(self, options: ProgramOptions, items: list[Item]) -> None:
        self._options = options
        self.rest = list(items)
        """The items that are not read yet."""
        self._is_code_next = False
        self.names_program = False
        """Whether an option names what to run."""
        self.values: list[Item] = []
        """Values in the position of what is run, unless an option names it."""
        self.reads_stdin = False
        """Whether an item says that the script is on the standard input."""

    def scripts(self) -> Iterator[Item]:
        """Yield the scripts, each with the index of its item."""
        signs = ("-", "+") if self._options.is_shell else ("-",)
        takes_first = self._options.is_wrapper or self._options.first_is_code
        while self.rest:
            index, text = self.rest[0]
            if text in ("-", "--"):
                self.rest.pop(0)
                self.reads_stdin |= text == "-"
                break
            if text.startswith(signs):
                self.rest.pop(0)
                yield from self._long(index, text) if text.startswith("--") else self._short(index, text)
            elif text.startswith("{{") and not (self._is_code_next or takes_first):
                # The value may be an empty list. Then the program reads what follows as if the item were not there.
                self.values.append(self.rest.pop(0))
            else:
                break
        if (self._options.is_shell and self._is_code_next) or (self._options.first_is_code and not self.names_program):
            yield from self._next()

    def _next(self) -> Iterator[Item]:
        """Yield the next item, and the items that may take its position if a value is an empty list."""
        while self.rest:
            index, text = self.rest.pop(0)
            yield index, text
            if not text.startswith("{{"):
                return

    def _long(self, index: int, text: str) -> Iterator[Item]:
        name, equals, value = text[2:].partition("=")
        if has_expressions(name):
            yield index, text
        elif name in self._options.long_code:
            self.names_program = True
            yield from [(index, value)] if equals else self._next()
        elif not equals and name in self._options.long_taking:
            del self.rest[:1]

    def _short(self, index: int, text: str) -> Iterator[Item]:
        constant = text.split("{{")[0]
        if self._options.is_shell:
            self._is_code_next |= any(letter in self._options.code for letter in constant)
            self.reads_stdin |= "s" in constant
            del self.rest[: sum(letter in self._options.taking for letter in constant)]
        else:
            for position, letter in enumerate(constant[1:], 1):
                if letter in self._options.code + self._options.ending + self._options.taking:
                    yield from self._argument(letter, (index, text[position + 1 :]))
                    return
                if letter in self._options.attached:
                    return
        if constant != text:
            # The value could add the option letter.
            yield index, text

    def _argument(self, letter: str, attached: Item) -> Iterator[Item]:
        if letter in self._options.code:
            self.names_program = True
            yield from [attached] if attached[1] else self._next()
        elif not attached[1]:
            del self.rest[:1]
        if letter in self._options.ending:
            self.rest.clear()
            self.names_program = True


@dataclass(frozen=True)
class Wrapper:
    """A program that runs the command that follows its own arguments."""

    options: ProgramOptions
    operands: int = 0
    """The number of its own operands before the command."""
    takes_assignments: bool = False
    is_shell: bool = False
    """Whether the following items are passed to a shell, or may be."""


def _wrapper(taking: str = "", *long_taking: str, operands: int = 0, is_shell: bool = False) -> Wrapper:
    options = ProgramOptions(taking=taking, long_taking=long_taking, is_wrapper=True)
    return Wrapper(options, operands, takes_assignments=False, is_shell=is_shell)


INTERPRETERS = (
    (
        re.compile(r"(?:r?bash|[akz]?sh|dash|m?ksh\d*|t?csh)[\d.-]*"),
        ProgramOptions("c", "oO", long_taking=("rcfile", "init-file"), is_shell=True),
    ),
    (
        re.compile(r"fish"),
        ProgramOptions(
            "cC", "dDfop", long_code=("command", "init-command"), long_taking=("debug", "features", "profile")
        ),
    ),
    (re.compile(r"(?:python|pypy).*"), ProgramOptions("c", "WX", ending="cm", long_taking=("check-hash-based-pycs",))),
    (re.compile(r"perl[\d.]*"), ProgramOptions("eE", "I", "DFMVdimx")),
    (re.compile(r"ruby[\d.]*"), ProgramOptions("e", "CEIr", "FKix", long_taking=("encoding",))),
    (
        re.compile(r"node(?:js)?[\d.]*"),
        ProgramOptions(
            "ep",
            "Cr",
            long_code=("eval", "print"),
            long_taking=("require", "import", "conditions", "loader", "experimental-loader", "input-type"),
        ),
    ),
    (re.compile(r"php[\d.]*"), ProgramOptions("rBRE", "cdz", ending="f")),
    (re.compile(r"lua(?:jit)?[\d.]*"), ProgramOptions("e", "l")),
    (re.compile(r"[gmn]?awk"), ProgramOptions("e", "Fv", ending="f", long_taking=("assign",), first_is_code=True)),
    (re.compile(r"g?sed"), ProgramOptions("e", "l", ending="f", long_code=("expression",), first_is_code=True)),
)
"""Patterns of program names, with the options that show where scripts are among the arguments."""

ENV = Wrapper(
    ProgramOptions("S", "uC", long_code=("split-string",), long_taking=("unset", "chdir"), is_wrapper=True),
    takes_assignments=True,
)
_SUDO = ("user", "group", "host", "prompt", "chdir", "chroot", "close-from", "command-timeout", "other-user")
_XARGS = ("arg-file", "delimiter", "max-args", "max-chars", "max-lines", "max-procs")

WRAPPERS = {
    "env": ENV,
    "sudo": Wrapper(ProgramOptions(taking="CDghpRrTtUu", long_taking=_SUDO, is_wrapper=True), takes_assignments=True),
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
"""Arguments of `find` that are followed by a command."""


def options_of(program: str) -> ProgramOptions | None:
    """Return the options of a program that takes a script; None for other programs."""
    name = program.rpartition("/")[2]
    return next((options for names, options in INTERPRETERS if names.fullmatch(name)), None)


VALUE_IN_SCRIPT = (
    "values must not become part of a script: use `shell:` with `env:`, or pass the value as a further argument "
    "after a constant script"
)
VALUE_IS_SCRIPT = (
    "values must not become a script, and this program reads its script from there: give it a constant one"
)
VALUE_IS_PROGRAM = "callers must not choose the program: make it constant"

STDIN_INDEX = -1
"""The index that stands for the standard input of a command."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ONLY_A_VALUE = re.compile(r"{{.*}}", re.DOTALL)


def find_injections(argv: Sequence[str], stdin: str = "") -> Iterator[tuple[int, str]]:
    """Yield the index of each value that would be part of a script or choose the program, and how to fix it."""
    for index, message in _command(list(enumerate(argv))):
        if index != STDIN_INDEX or has_expressions(stdin):
            yield index, message


def _command(items: list[Item]) -> Iterator[tuple[int, str]]:
    if not items:
        return
    name = items[0][1].rpartition("/")[2]
    if name in WRAPPERS:
        yield from _check_wrapped(WRAPPERS[name], items[1:])
    if name == "find":
        for number, (_, text) in enumerate(items):
            if text in RUNS_NEXT:
                yield from _command(items[number + 1 :])
    options = options_of(name)
    if options is None:
        return
    reader = OptionReader(options, items[1:])
    scripts = list(reader.scripts())
    yield from ((index, VALUE_IN_SCRIPT) for index, text in scripts if has_expressions(text))
    if scripts or reader.names_program:
        return
    files = [] if reader.reads_stdin else [*reader.values, *reader.rest[:1]]
    yield from ((index, VALUE_IS_PROGRAM) for index, text in files if has_expressions(text))
    if not files or files[-1][1] in STDIN:
        yield STDIN_INDEX, VALUE_IS_SCRIPT


def _check_wrapped(wrapper: Wrapper, items: list[Item]) -> Iterator[tuple[int, str]]:
    reader = OptionReader(wrapper.options, items)
    for index, text in reader.scripts():
        # `env -S` splits its text and reads the words in the position of the option, again with options first.
        if has_expressions(text):
            yield index, VALUE_IN_SCRIPT
        else:
            yield from _check_wrapped(ENV, [*((index, word) for word in _words(text)), *reader.rest])
        return
    operands, rest = reader.rest[: wrapper.operands], reader.rest[wrapper.operands :]
    # An operand that is nothing but a value may be a list, whose next item would be the program.
    yield from ((index, VALUE_IS_PROGRAM) for index, text in operands if _ONLY_A_VALUE.fullmatch(text))
    if wrapper.is_shell:
        yield from ((index, VALUE_IN_SCRIPT) for index, text in rest if has_expressions(text))
        return
    while wrapper.takes_assignments and rest and _ASSIGNMENT.match(rest[0][1]):
        rest.pop(0)
    if rest and has_expressions(rest[0][1]):
        yield rest[0][0], VALUE_IS_PROGRAM
    yield from _command(rest)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
