"""Reading the arguments of a command as its program does."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from raincheck.workflows.expressions import is_open

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
