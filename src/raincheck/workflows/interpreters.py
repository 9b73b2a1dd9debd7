"""In which arguments of a command no value may be: they would be part of a script, or choose the program."""

import re
import shlex
from collections.abc import Iterator, Sequence

from raincheck.workflows.command_options import Item, OptionReader
from raincheck.workflows.command_programs import ENV, RUNS_NEXT, STDIN, WRAPPERS, Wrapper, options_of
from raincheck.workflows.expressions import is_open

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
