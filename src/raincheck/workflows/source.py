"""A file of workflows as data, with the line of everything in it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import yaml

from raincheck.core.payload import Json
from raincheck.workflows.faults import Fault, WorkflowFaults
from raincheck.workflows.yaml_values import DEPTH_LIMIT, Reading, Route

FILE_LIMIT = 1_000_000

# What its stubs leave open.
_yaml: Any = yaml

_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):
    """Tells what is written there, and leaves to us what it means."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # pyright: ignore[reportIncompatibleVariableOverride] - the stubs have it as an attribute


class Source:
    """What a file says, and where."""

    def __init__(self, file: Path, data: Json, lines: dict[Route, int]) -> None:
        self.file = file
        self.data = data
        self._lines = lines

    def line_of(self, path: Sequence[str | int]) -> int:
        """The line of a value, or of what is nearest to it."""
        return self._lines.get(self._known(path), 1)

    def fault(self, path: Sequence[str | int], message: str) -> Fault:
        """Something that is wrong there. Steps are named by their ids."""
        return Fault(str(self.file), self.line_of(path), ".".join(self._names(path)), message)

    def _known(self, path: Sequence[str | int]) -> Route:
        known: Route = ()
        for part in path:
            # What is not in the file is passed over: models know names that a short form leaves out.
            if (*known, part) in self._lines:
                known = (*known, part)
        return known

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


def _id_of(value: Any) -> str | None:  # noqa: ANN401 - whatever the file says
    own: Any = value.get("id") if hasattr(value, "get") else None
    return own if isinstance(own, str) else None


def read_source(file: Path) -> Source:
    """Read a file.

    Raises:
        WorkflowFaults: it can't be read, is too large, or is not the YAML that is taken here.
    """
    text = _read(file)
    try:
        _check_events(file, text)
        node = cast("yaml.Node | None", _yaml.compose(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise WorkflowFaults([_told(file, text, error)]) from error
    if node is None:
        raise _refused(file, "it is empty: begin with `raincheck: 1` and `workflows:`")
    reading = Reading(file)
    data = reading.value(node, ())
    if reading.faults:
        raise WorkflowFaults(reading.faults)
    return Source(file, data, reading.lines)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_LIMIT + 1)
    except OSError as error:
        raise _refused(file, f"it can't be read: {error.strerror or error}") from error
    if len(content) > FILE_LIMIT:
        raise _refused(file, f"it has more than {FILE_LIMIT:,} bytes: split it into several files in one folder")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise WorkflowFaults([Fault(str(file), line, "", "it is not UTF-8 text: save it as UTF-8")]) from error


def _refused(file: Path, message: str) -> WorkflowFaults:
    return WorkflowFaults([Fault(str(file), 1, "", message)])


def _check_events(file: Path, text: str) -> None:
    """Refuse what must not be made into nodes, since that takes a stack as deep as the file is nested."""
    depth = 0
    for event in cast("Iterable[Any]", _yaml.parse(text, Loader=_Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1
        if depth > DEPTH_LIMIT:
            message = f"it is nested deeper than {DEPTH_LIMIT} levels: make it flatter"
            raise WorkflowFaults([Fault(str(file), line, "", message)])
        if isinstance(event, yaml.CollectionStartEvent | yaml.ScalarEvent) and event.tag is not None:
            message = f"the tag {event.tag} is not taken: write the value without it"
            raise WorkflowFaults([Fault(str(file), line, "", message)])


def _told(file: Path, text: str, error: yaml.YAMLError) -> Fault:
    if not isinstance(error, yaml.MarkedYAMLError):
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        return Fault(str(file), line, "", "it has a character that YAML does not allow: remove it")
    mark = error.problem_mark or error.context_mark
    words = "this is not YAML: " + ", ".join(word for word in (error.context, error.problem) if word)
    if "mapping values are not allowed" in words:
        words += ": a text with a colon and a space in it goes in quotes"
    if "single document" in words:
        words = "there is a second document (`---`): one file has one"
    return Fault(str(file), 1 if mark is None else mark.line + 1, "", words)
