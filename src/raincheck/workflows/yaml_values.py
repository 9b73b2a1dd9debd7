"""What the parts of a YAML file mean as JSON, with their lines.

What a YAML file can do besides saying data is refused: keys that are not text, aliases without end. Words are
what they look like: only `true` and `false` are truth values, so that `on` can be a key.
"""

import re
from pathlib import Path
from typing import TypeAlias

import yaml

from raincheck.core.payload import Json
from raincheck.workflows.faults import Fault

Route: TypeAlias = tuple[str | int, ...]
"""The keys and places that lead to a value."""

DEPTH_LIMIT = 60
VALUES_LIMIT = 50_000
"""Values in a file, with every alias written out."""
TEXT_LIMIT = 4_000_000
"""Characters of all keys and values, likewise."""

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DIGITS = 300


class Reading:
    """Makes data of what YAML has parsed."""

    def __init__(self, file: Path) -> None:
        self.lines: dict[Route, int] = {}
        self.faults: list[Fault] = []
        self._file = str(file)
        self._count = 0
        self._length = 0

    def value(self, node: yaml.Node, route: Route) -> Json:
        """The value of a node. What can't be taken is among the faults then, and None here."""
        line = node.start_mark.line + 1
        self.lines.setdefault(route, line)
        self._count += 1
        if self._count > VALUES_LIMIT:
            if self._count == VALUES_LIMIT + 1:
                self._refuse(line, route, f"there are more than {VALUES_LIMIT:,} values: use fewer aliases")
            return None
        if len(route) > DEPTH_LIMIT:
            # An alias that is part of itself ends here, too.
            self._refuse(line, route[:3], f"it is nested deeper than {DEPTH_LIMIT} levels: make it flatter")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, route)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*route, place)) for place, item in enumerate(node.value)]
        if not self._has_room(node, route):
            return None
        try:
            return _meaning(node)
        except ValueError as error:
            self._refuse(line, route, str(error))
            return None

    def _has_room(self, node: yaml.Node, route: Route) -> bool:
        """Whether a text is within what all texts may have together. An alias brings its text anew each time."""
        had, length = self._length, len(node.value)
        self._length += length
        if had <= TEXT_LIMIT < self._length:
            message = f"all texts have more than {TEXT_LIMIT:,} characters together: use fewer aliases"
            self._refuse(node.start_mark.line + 1, route, message)
        return self._length <= TEXT_LIMIT

    def _mapping(self, node: yaml.MappingNode, route: Route) -> Json:
        found: dict[str, Json] = {}
        for key_node, value_node in node.value:
            line, key = key_node.start_mark.line + 1, key_node.value
            if not _is_text(key_node):
                shown = key if isinstance(key, str) else "here"
                message = f"the key {shown} is not text: put it in quotes"
                if isinstance(key_node, yaml.MappingNode):
                    message = "YAML takes {{ for a mapping here: put the whole text in quotes"
                self._refuse(line, route, message)
            elif key in found:
                first = self.lines[*route, key]
                self._refuse(line, (*route, key), f"it is there already, in line {first}: remove one of the two")
            elif self._has_room(key_node, route):
                self.lines[*route, key] = line
                found[key] = self.value(value_node, (*route, key))
        return found

    def _refuse(self, line: int, route: Route, message: str) -> None:
        self.faults.append(Fault(self._file, line, ".".join(map(str, route)), message))


def _is_text(node: yaml.Node) -> bool:
    try:
        return isinstance(node, yaml.ScalarNode) and isinstance(_meaning(node), str)
    except ValueError:
        return False


def _meaning(node: yaml.Node) -> Json:
    """What a word is: text, unless it is written plainly and looks like something else."""
    text: str = node.value
    if not isinstance(node, yaml.ScalarNode) or node.style:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _NO_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is no number that JSON has: put it in quotes, or use another")
    if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
        if len(text) > _DIGITS:
            raise ValueError(f"this number has more than {_DIGITS} digits: put it in quotes")
        return int(text, 10 if _INTEGER.fullmatch(text) else 0)
    if _NUMBER.fullmatch(text):
        return _number(text)
    return text


def _number(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large for a number: put it in quotes, or use another")
    return number
