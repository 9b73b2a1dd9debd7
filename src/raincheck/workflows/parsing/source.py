"""Read a workflow file as JSON data, with the line of each value.

YAML features beyond plain data are refused, such as keys that are not text and recursive aliases. Only `true` and
`false` are booleans, so that `on` can be a key.

The module also parses durations and sizes in the notation that authors use.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import yaml

from raincheck.core.values import Json, Payload, decode, encode
from raincheck.errors import InvalidValue, RaincheckError
from raincheck.workflows.definition import Diagnostic, InvalidWorkflow, KeyPath, Problem

MAX_DURATION = 366 * 24 * 3600.0

_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZES = {"": 1, "b": 1, "kb": 1_024, "mb": 1_024**2, "gb": 1_024**3}

_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([smhd]?)")
_SIZE = re.compile(r"([0-9]{1,12})\s*([kmg]?b|)", re.IGNORECASE)


def parse_duration(value: str | float) -> float:
    """Return the seconds of a duration: `30s`, `5m`, `2h`, `1d`, or a number of seconds.

    Raises:
        InvalidValue: it is not a duration, or longer than 366 days.
    """
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None:
        amount = float(found[1]) * _UNITS[found[2] or "s"]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        amount = value
    else:
        raise InvalidValue(f"a duration is written like 30s, 5m, 2h or 1d, or as a number of seconds, not {value!r}")
    # Compared before it is converted: an integer may be too large for a float.
    if not 0 <= amount <= MAX_DURATION:
        raise InvalidValue(f"a duration is from 0 to 366 days, not {value!r}")
    return float(amount)


def parse_size(value: str | int) -> int:
    """Return the bytes of a size: `500KB`, `1MB`, `2GB`, or a number of bytes. A KB is 1,024 bytes.

    Raises:
        InvalidValue: it is not a size.
    """
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None:
        return int(found[1]) * _SIZES[found[2].lower()]
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise InvalidValue(f"a size is written like 500KB or 1MB, or as a number of bytes, not {value!r}")


DEPTH_LIMIT = 60
VALUES_LIMIT = 50_000
"""Values in a file, with every alias expanded."""
TEXT_LIMIT = 4_000_000
"""Characters of all keys and values, with every alias expanded."""

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


class YamlDecoder:
    """Decodes the nodes that YAML has parsed into data."""

    def __init__(self, file: Path) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.diagnostics: list[Diagnostic] = []
        self._file = str(file)
        self._count = 0
        self._length = 0

    def decode(self, node: yaml.Node, route: KeyPath) -> Json:
        """Return the value of a node. An invalid value is added to the diagnostics, and is None here."""
        line = node.start_mark.line + 1
        self.lines.setdefault(route, line)
        self._count += 1
        if self._count > VALUES_LIMIT:
            if self._count == VALUES_LIMIT + 1:
                self._refuse(line, route, f"there are more than {VALUES_LIMIT:,} values: use fewer aliases")
            return None
        if len(route) > DEPTH_LIMIT:
            # A recursive alias ends here, too.
            self._refuse(line, route[:3], f"it is nested deeper than {DEPTH_LIMIT} levels: make it flatter")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, route)
        if isinstance(node, yaml.SequenceNode):
            return [self.decode(item, (*route, index)) for index, item in enumerate(node.value)]
        if not self._fits(node, route):
            return None
        try:
            return _resolve_scalar(node)
        except ValueError as error:
            self._refuse(line, route, str(error))
            return None

    def _fits(self, node: yaml.Node, route: KeyPath) -> bool:
        """Return whether a text is within the limit of all texts together. Each use of an alias counts again."""
        before = self._length
        self._length += len(node.value)
        if before <= TEXT_LIMIT < self._length:
            message = f"all texts have more than {TEXT_LIMIT:,} characters together: use fewer aliases"
            self._refuse(node.start_mark.line + 1, route, message)
        return self._length <= TEXT_LIMIT

    def _mapping(self, node: yaml.MappingNode, route: KeyPath) -> Json:
        found: dict[str, Json] = {}
        for key_node, value_node in node.value:
            line, key = key_node.start_mark.line + 1, key_node.value
            if not _is_text(key_node):
                name = key if isinstance(key, str) else "here"
                message = f"the key {name} is not text: put it in quotes"
                if isinstance(key_node, yaml.MappingNode):
                    message = "YAML reads {{ as a mapping here: put the whole text in quotes"
                self._refuse(line, route, message)
            elif key in found:
                first = self.lines[*route, key]
                self._refuse(line, (*route, key), f"this key is already in line {first}: remove one of the two")
            elif self._fits(key_node, route):
                self.lines[*route, key] = line
                found[key] = self.decode(value_node, (*route, key))
        return found

    def _refuse(self, line: int, route: KeyPath, message: str) -> None:
        self.diagnostics.append(Diagnostic(self._file, line, ".".join(map(str, route)), message))


def _is_text(node: yaml.Node) -> bool:
    try:
        return isinstance(node, yaml.ScalarNode) and isinstance(_resolve_scalar(node), str)
    except ValueError:
        return False


def _resolve_scalar(node: yaml.Node) -> Json:
    """Return the value of a scalar: text, unless it is not quoted and looks like something else."""
    text: str = node.value
    if not isinstance(node, yaml.ScalarNode) or node.style:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _NO_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is not a number in JSON: put it in quotes, or use another number")
    if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
        if len(text) > _DIGITS:
            raise ValueError(f"this number has more than {_DIGITS} digits: put it in quotes")
        return int(text, 10 if _INTEGER.fullmatch(text) else 0)
    if not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large for a number: put it in quotes, or use another number")
    return number


FILE_LIMIT = 1_000_000

# The stubs leave some of its types open.
_yaml: Any = yaml

_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):
    """Returns scalars as they are written. `YamlDecoder` interprets them."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # pyright: ignore[reportIncompatibleVariableOverride] - the stubs have it as an attribute


SHARED_KEYS = ("raincheck", "allow", "servers")
"""The keys of a file that apply to all its workflows."""


@dataclass(frozen=True, eq=False)
class Source:
    """The data of a file, with the line of each value.

    `encode` returns the part of it that is stored with the tasks of a workflow, so that they can resume after the file
    changes.
    """

    file: Path
    data: Json
    lines: Mapping[KeyPath, int]

    def line_of(self, path: Sequence[str | int]) -> int:
        """Return the line of a value, or of the nearest value around it."""
        return self.lines.get(self._nearest(path), 1)

    def diagnostic(self, path: Sequence[str | int], message: str) -> Diagnostic:
        """Create a diagnostic for the value at a path. Steps are named by their ids."""
        return Diagnostic(str(self.file), self.line_of(path), ".".join(self._names(path)), message)

    def diagnostics(self, problems: Iterable[Problem], prefix: KeyPath = ()) -> list[Diagnostic]:
        """Create the diagnostics for problems within the value at a path."""
        return [self.diagnostic((*prefix, *route), message) for route, message in problems]

    def digest(self, name: str) -> str:
        """Return a digest that distinguishes the definitions of a workflow."""
        return hashlib.sha256(encode(cast("Any", self.data)["workflows"][name])).hexdigest()[:12]

    def encode(self, name: str) -> bytes:
        """Encode one workflow for storage with its tasks, with the keys of the file that apply to all workflows."""
        data = cast("Mapping[str, Any]", self.data)
        content = {key: data[key] for key in SHARED_KEYS if key in data} | {
            "workflows": {name: data["workflows"][name]}
        }
        return encode({"file": str(self.file.resolve()), "said": content}, what=f"workflow {name!r}")

    @classmethod
    def decode(cls, definition: bytes) -> "Source":
        """Decode a stored workflow as a file, at the path of the file that it came from.

        Raises:
            InvalidWorkflow: it is not a stored workflow.
        """
        try:
            whole = decode(Payload(definition))
        except RaincheckError as error:
            raise _invalid_definition(str(error)) from error
        file, content = (whole.get("file"), whole.get("said")) if isinstance(whole, Mapping) else (None, None)
        if not isinstance(file, str) or "\0" in file or not Path(file).is_absolute():
            raise _invalid_definition("it does not name its file")
        workflows = content.get("workflows") if isinstance(content, Mapping) else None
        if not isinstance(workflows, Mapping) or len(workflows) != 1:
            raise _invalid_definition("it does not have exactly one workflow")
        return cls(Path(file), content, {})

    def _nearest(self, path: Sequence[str | int]) -> KeyPath:
        nearest: KeyPath = ()
        for part in path:
            # Skip parts that are not in the file: models have names that a short form leaves out.
            if (*nearest, part) in self.lines:
                nearest = (*nearest, part)
        return nearest

    def _names(self, path: Sequence[str | int]) -> list[str]:
        names: list[str] = []
        value: Any = self.data
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError):
                value = None
            except TypeError:
                # A name that a short form leaves out.
                continue
            names.append(_id_of(value) or str(part) if isinstance(part, int) else part)
        return names


def file_error(file: Path | str, message: str, line: int = 1) -> InvalidWorkflow:
    """Return the error of a file that can't be used as a whole."""
    return InvalidWorkflow([Diagnostic(str(file), line, "", message)])


def _invalid_definition(reason: str) -> InvalidWorkflow:
    return file_error("stored definition", f"this is not the definition of a workflow: {reason}")


def _id_of(value: Any) -> str | None:  # noqa: ANN401 - any YAML value
    step_id: Any = value.get("id") if hasattr(value, "get") else None
    return step_id if isinstance(step_id, str) else None


def read_source(file: Path) -> Source:
    """Read a file.

    Raises:
        InvalidWorkflow: it can't be read, is too large, or is not YAML of the accepted subset.
    """
    text = _read(file)
    try:
        _check_events(file, text)
        node = cast("yaml.Node | None", _yaml.compose(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise _yaml_error(file, text, error) from error
    if node is None:
        raise file_error(file, "the file is empty: start it with `raincheck: 1` and `workflows:`")
    decoder = YamlDecoder(file)
    data = decoder.decode(node, ())
    if decoder.diagnostics:
        raise InvalidWorkflow(decoder.diagnostics)
    return Source(file, data, decoder.lines)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_LIMIT + 1)
    except OSError as error:
        raise file_error(file, f"the file can't be read: {error.strerror or error}") from error
    if len(content) > FILE_LIMIT:
        raise file_error(
            file, f"the file has more than {FILE_LIMIT:,} bytes: split it into several files in one folder"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise file_error(file, "the file is not UTF-8 text: save it as UTF-8", line) from error


def _check_events(file: Path, text: str) -> None:
    """Refuse deep nesting and tags before nodes are made, since that needs a stack as deep as the file is nested."""
    depth = 0
    for event in cast("Iterable[Any]", _yaml.parse(text, Loader=_Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1
        if depth > DEPTH_LIMIT:
            raise file_error(file, f"it is nested deeper than {DEPTH_LIMIT} levels: make it flatter", line)
        if isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent) and event.tag is not None:
            raise file_error(file, f"the tag {event.tag} is not supported: write the value without it", line)


def _yaml_error(file: Path, text: str, error: yaml.YAMLError) -> InvalidWorkflow:
    if not isinstance(error, yaml.MarkedYAMLError):
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        return file_error(file, "the file has a character that YAML does not allow: remove it", line)
    mark = error.problem_mark or error.context_mark
    message = "this is not YAML: " + ", ".join(part for part in (error.context, error.problem) if part)
    if "mapping values are not allowed" in message:
        message += ": put a text that contains a colon and a space in quotes"
    if "single document" in message:
        message = "the file has a second document (`---`): put it in a file of its own"
    return file_error(file, message, 1 if mark is None else mark.line + 1)
