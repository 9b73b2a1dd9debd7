"""Build the texts for callers without tasks: answers about a task, its questions and its progress.

The texts are written for a model, and name the next call. A task that has ended is answered with its result, as if the
call had waited for it. A task's question is described as text for a model whose host can't be asked, and the model
answers it by calling a tool. `FallbackTools` are the names of those tools. Short descriptions of a task, its age and a
duration are for models and people.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from datetime import datetime
from typing import Any, Self, assert_never

from raincheck.core.lifecycle import Phase
from raincheck.core.records import InputKind, InputRequest, Progress, Task, View
from raincheck.core.values import Json
from raincheck.errors import CancelRefused, ConfigurationError
from raincheck.wire.fields import as_list, as_object, format_timestamp, request_of

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackTools:
    """The names of the tools that a server lists for callers without tasks, besides its own tools.

    Choose other names if the server uses these, or if a host connects to several such servers and can't tell their
    tools apart: `Tasks(mcp, fallback_tools=FallbackTools.prefixed("reports_"))`.

    Raises:
        ConfigurationError: a name is not valid for a tool, or two names are equal.
    """

    wait: str = "task_wait"
    status: str = "task_status"
    result: str = "task_result"
    cancel: str = "task_cancel"
    answer: str = "task_answer"

    def __post_init__(self) -> None:
        for name in self:
            if not isinstance(name, str) or NAME.fullmatch(name) is None:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be type-checked
                raise ConfigurationError(
                    f"{name!r} is not a valid tool name: use 1 to 128 letters, digits and the characters _ - ."
                )
        if len(set(self)) < len(tuple(self)):
            raise ConfigurationError(f"the five fallback tools need five different names, not {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(astuple(self))

    @classmethod
    def prefixed(cls, prefix: str) -> Self:
        """Return the default names, each with the same prefix."""
        return cls(**{field: f"{prefix}{name}" for field, name in zip(cls.__slots__, cls(), strict=True)})

    def check_free(self, names: Iterable[str]) -> None:
        """Check that the server has no tools of these names.

        Raises:
            ConfigurationError: the server has a tool of one of these names. The error names the tool and the remedy.
        """
        for name in names:
            if name in self:
                raise ConfigurationError(
                    f"the server's tool {name!r} has the name of a fallback tool for callers without tasks: "
                    f'rename the tool, or pass fallback_tools=FallbackTools.prefixed("…_")'
                )


MAX_TEXT_LENGTH = 240
"""The maximum number of characters of a quoted text inside a longer text."""

PHASE_TEXT = {
    Phase.QUEUED: "is waiting in the queue",
    Phase.PAUSED: "is paused by the operator",
    Phase.COMPLETED: "has completed",
    Phase.FAILED: "has failed",
    Phase.CANCELLED: "was cancelled",
}
"""The description of a task by its phase. In any other phase the task is still running."""


def describe_task(task: Task, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Describe a task briefly, such as "build_report is still running: 3 of 12, crunching"."""
    phase = PHASE_TEXT.get(task.phase, "is still running")
    if task.open_inputs or task.is_error:
        phase = "ended with an error" if task.is_error else "waits for an answer"
    amount = [] if task.progress is None or task.is_terminal else [_amount(task.progress)]
    message = [] if not task.status_message else [clip_text(task.status_message, max_length)]
    # A default status message only repeats the phase.
    details = ", ".join(text for text in dict.fromkeys(amount + message) if text != task.phase)
    return f"{task.tool.name} {phase}{': ' if details else ''}{details}".rstrip(".")


def format_duration(seconds: float) -> str:
    """Format a duration for people and models, such as "45 s", "3 min" or "2 h"."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.2g} s" if seconds >= 1 else f"{max(seconds, 0.0) * 1_000:.0f} ms"


def format_age(task: Task, now: datetime) -> str:
    """Format the time since a task was created."""
    return f"{format_duration((now - task.created_at).total_seconds())} ago"


def clip_middle(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Cut the middle out of a long text, because an error message describes a long value before or after it."""
    return text if len(text) <= 2 * max_length else f"{text[:max_length]} … {text[-max_length:]}"


def clip_text(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Collapse whitespace, and truncate a text that is too long for a model."""
    text = " ".join(text.split())
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _amount(progress: Progress) -> str:
    return f"{progress.done:g} done" if progress.total is None else f"{progress.done:g} of {progress.total:g}"


@dataclass(frozen=True, slots=True)
class QuestionText:
    """A question as a model reads it."""

    text: str
    example_answer: Json
    """An example answer with placeholders, which shows the shape of the answer."""
    fields: dict[str, Any]
    may_decline: bool = True
    """Whether the user may decline to answer."""


def describe_question(question: InputRequest) -> QuestionText:
    """Describe a question completely, because nothing else may reach the model."""
    params = request_of(question)["params"]
    message = str(params.get("message", "")).strip()
    match question.kind:
        case InputKind.ELICITATION if "url" in params:
            text = f"Have the user open {params['url']}: {message or 'they must act there.'}"
            return QuestionText(text, {}, {"kind": "url", **params})
        case InputKind.ELICITATION:
            schema = as_object(params.get("requestedSchema"))
            return QuestionText(
                f"Ask the user: {message}{_fields_of(schema)}", _example(schema), {"kind": "form", **params}
            )
        case InputKind.SAMPLING:
            fields = {"kind": "reply", **params}
            return QuestionText(
                f"Reply yourself: {_format_messages(params)}", {"text": "<reply>"}, fields, may_decline=False
            )
        case InputKind.ROOTS:
            answer: Json = {"roots": [{"uri": "file:///<folder>"}]}
            fields = {"kind": "roots", **params}
            return QuestionText("Name the folders to work in.", answer, fields, may_decline=False)
        case _:
            assert_never(question.kind)


def _fields_of(schema: Mapping[str, Json]) -> str:
    """Describe the fields of a form."""
    properties, required = as_object(schema.get("properties")), as_list(schema.get("required"))
    fields = [_field(name, as_object(part), is_required=name in required) for name, part in properties.items()]
    return f" ({'; '.join(fields)})" if fields else ""


def _field(name: str, schema: Mapping[str, Json], *, is_required: bool) -> str:
    kind = " | ".join(_choices(schema)) or str(schema.get("type", "anything"))
    description = schema.get("description")
    return f"{name}: {kind}{'' if is_required else ', optional'}{f', {description}' if description else ''}"


def _choices(schema: Mapping[str, Json]) -> list[str]:
    """Return the choices that a field declares, for a single value or for each item of a list."""
    items = as_object(schema.get("items"))
    if items:
        several = " | ".join(_choices(items)) or str(items.get("type", "anything"))
        return [f"several of {several}"]
    options = [as_object(option) for name in ("oneOf", "anyOf") for option in as_list(schema.get(name))]
    named = [
        f"{option['const']} ({option['title']})" if "title" in option else str(option["const"])
        for option in options
        if "const" in option
    ]
    return [*map(str, as_list(schema.get("enum"))), *named]


def _example(schema: Mapping[str, Json]) -> dict[str, Json]:
    properties = as_object(schema.get("properties"))
    names = as_list(schema.get("required")) or list(properties)
    return {str(name): f"<{as_object(properties.get(str(name))).get('type', 'value')}>" for name in names}


def _format_messages(params: Mapping[str, Json]) -> str:
    """Format the messages that a model is asked to reply to."""
    messages = [as_object(message) for message in as_list(params.get("messages"))]
    texts = [_text_of(message.get("content")) for message in messages]
    if len(texts) > 1:
        texts = [f"{message.get('role')}: {text}" for message, text in zip(messages, texts, strict=True)]
    system = params.get("systemPrompt")
    return "\n".join(texts if system is None else [str(system), *texts])


def _text_of(content: Json) -> str:
    blocks = as_list(content) or [content]
    return " ".join(str(as_object(block).get("text", "")) for block in blocks)


MAX_WAITS = 10
"""If a task needs more waits than this, the model is advised to fetch the result later."""

MAX_ANSWER_LENGTH = 599
"""The maximum number of characters of an answer, to spare the model's context. A single question may take more."""

MAX_SUMMARY_LENGTH = 40
"""The maximum number of characters of a task's status message in a list."""

RUNS_IN_BACKGROUND = "It keeps running in the background"
WAITS_FOR_OPERATOR = "It continues only after the operator resumes it"

TASK_META_KEY = "raincheck/task"
"""The `_meta` key of an answer that stands for a task. Its value is the task's id."""

TOOLS_META_KEY = "raincheck/tools"
"""The `_meta` key of the same answer for programs. Its value maps purposes to the names of the fallback tools."""


@dataclass(frozen=True, slots=True)
class FallbackMessages:
    """Builds answers for callers without tasks, from the fallback tools' names and the seconds that `wait` takes."""

    tools: FallbackTools
    wait: float
    name_conflicts: set[str] = field(default_factory=set[str], compare=False)
    """Names of fallback tools that the server's own tools use. The server's tools are listed and called instead."""

    def unfinished(
        self, view: View, now: datetime, seconds_left: float | None, *, user_was_asked: bool = False
    ) -> dict[str, Any]:
        """Return the answer for a task that has not ended, with the estimated seconds that are left, if known.

        If the host has already asked the user and waits for the answer, the model does not need to ask.
        """
        task = view.task
        if view.inputs and not user_was_asked:
            return self._input_required(task, view.inputs)
        is_paused = task.phase is Phase.PAUSED
        activity = "The user has been asked" if view.inputs else WAITS_FOR_OPERATOR if is_paused else RUNS_IN_BACKGROUND
        remaining = "" if seconds_left is None or is_paused else f", and has about {format_duration(seconds_left)} left"
        is_long = is_paused or (seconds_left is not None and seconds_left > MAX_WAITS * self.wait)
        instruction = "Tell the user, and get its result later: call" if is_long else "For its result, call"
        arguments = {"task_id": task.id}
        summary = describe_task(task, MAX_SUMMARY_LENGTH if view.inputs else MAX_TEXT_LENGTH)
        text = (
            f"{summary}.\nIt started {format_age(task, now)}{remaining}. {activity}.\n"
            f"{instruction} {_call(self.tools.wait, arguments)}, which waits up to {format_duration(self.wait)}."
        )
        next_call = _next(self.tools.wait, arguments)
        if not view.inputs:
            return self._answer(text, task, next=next_call)
        # A host may have closed the question together with the call that it belonged to.
        text = f"{text}\nIf the user doesn't see the question, "
        text += self._ask_instead(task, view.inputs, MAX_ANSWER_LENGTH - len(text))
        return self._answer(text, task, questions=_question_fields(view.inputs), next=next_call)

    def _ask_instead(self, task: Task, questions: Sequence[InputRequest], max_length: int) -> str:
        """Tell the model how to ask a question that its host has already asked.

        If the text is longer than `max_length`, name the call that returns it instead.
        """
        description = describe_question(questions[0])
        call = _call(self.tools.answer, {"task_id": task.id, "answer": description.example_answer})
        text = f"ask it here. {description.text}\nThen call {call}."
        if len(questions) == 1 and len(text) <= max_length:
            return text
        return f"call {_call(self.tools.status, {'task_id': task.id})}, which shows how to answer it here."

    def status(self, view: View, now: datetime, seconds_left: float | None) -> dict[str, Any]:
        """Return the task's status, whether or not it has ended."""
        return self._ended(view.task, "") if view.task.is_terminal else self.unfinished(view, now, seconds_left)

    def already_ended(self, task: Task) -> dict[str, Any]:
        """Return the answer to a cancel of a task that had already ended."""
        return self._ended(task, "Too late: ")

    def cancel_refused(self, task: Task, refused: CancelRefused) -> dict[str, Any]:
        """Return the answer to a cancel that the workflow does not allow now."""
        next_call = _next(self.tools.wait, {"task_id": task.id})
        text = f"{task.tool.name} can't be cancelled ({refused.reason}): {refused.explanation}. It continues."
        return self._answer(text, task, next=next_call)

    def latest_tasks(self, tasks: Sequence[Task], now: datetime, tool: str | None) -> dict[str, Any]:
        """List an owner's latest tasks, for a caller that has lost a task id."""
        of_tool = "" if tool is None else f" of {clip_text(tool)}"
        if not tasks:
            return _result(f"You have no tasks{of_tool}.", {"tasks": []})
        lines = [
            f"- {task.id}: {describe_task(task, MAX_SUMMARY_LENGTH)} (started {format_age(task, now)})"
            for task in tasks
        ]
        instruction = f"To continue with a task, call {self.tools.wait} with its task_id."
        text = "\n".join((f"Your latest tasks{of_tool}:", *lines, instruction))
        next_call = _next(self.tools.wait, {"task_id": tasks[0].id})
        return _result(text, {"tasks": [_task_fields(task) for task in tasks], "next": next_call})

    def cancelled(self, task: Task) -> dict[str, Any]:
        """Return the answer to a cancel that has just succeeded."""
        return self._answer(f"{task.tool.name} is cancelled: its work stops, and there will be no result.", task)

    def unknown_task(self, task_id: str, *, may_list: bool) -> dict[str, Any]:
        """Return the error for a task that does not exist or belongs to another caller."""
        list_tasks = f"call {self.tools.status} without a task_id for your latest tasks"
        remedy = list_tasks if may_list else "check the id in the answer that named it, or call the original tool again"
        return error_result(f"You have no task {clip_text(task_id)!r}, or it has been deleted: {remedy}.")

    def invalid_answer(self, view: View, reason: str) -> dict[str, Any]:
        """Return the error for an answer that does not match the question, which stays open."""
        prefix = f"Invalid answer: {clip_middle(reason, 2 * MAX_SUMMARY_LENGTH)}.\n"
        return {**self._input_required(view.task, view.inputs, prefix), "isError": True}

    def no_open_question(self, task: Task) -> dict[str, Any]:
        """Return the error for an answer to a task that has no open question."""
        call = _call(self.tools.wait, {"task_id": task.id})
        return error_result(
            f"{task.tool.name} has no open question, so the answer was not used. For its result, call {call}."
        )

    def answer_not_used(self, task: Task, ended: Mapping[str, Any]) -> dict[str, Any]:
        """Prefix the result of a task that ended before the answer arrived with a note that the answer was not used."""
        note = f"{task.tool.name} ended before this answer arrived, so the answer was not used. This is how it ended:"
        return {**ended, "content": [{"type": "text", "text": note}, *ended["content"]]}

    def _ended(self, task: Task, prefix: str) -> dict[str, Any]:
        if task.phase is Phase.CANCELLED:
            return self._answer(f"{prefix}{describe_task(task)}. There is no result.", task)
        arguments = {"task_id": task.id}
        text = f"{prefix}{describe_task(task)}.\nFor its result, call {_call(self.tools.result, arguments)}."
        return self._answer(text, task, next=_next(self.tools.result, arguments))

    def _input_required(self, task: Task, questions: Sequence[InputRequest], prefix: str = "") -> dict[str, Any]:
        calls: list[dict[str, Json]] = []
        lines: list[str] = []
        last: list[str] = []
        for question in questions:
            description = describe_question(question)
            key: dict[str, Json] = {"key": question.key} if len(questions) > 1 else {}
            calls.append({"task_id": task.id, **key, "answer": description.example_answer})
            lines.append(f"{description.text}\nThen call {_call(self.tools.answer, calls[-1])}.")
            if description.may_decline:
                last = [self._describe_decline(task, questions)]
        first = f"{prefix}{task.tool.name} waits for an answer."
        text = "\n".join((first, *lines, *last))
        while len(text) > MAX_ANSWER_LENGTH and len(lines) > 1:
            lines.pop()
            text = "\n".join((first, *lines, "It asks more questions after these.", *last))
        return self._answer(text, task, questions=_question_fields(questions), next=_next(self.tools.answer, calls[0]))

    def _answer(self, text: str, task: Task, **fields: Json) -> dict[str, Any]:
        meta = {TASK_META_KEY: task.id, TOOLS_META_KEY: asdict(self.tools)}
        return _result(text, _task_fields(task) | fields) | {"_meta": meta}

    def _describe_decline(self, task: Task, questions: Sequence[InputRequest]) -> str:
        if len(questions) > 1:
            return 'If the user declines one, make its call with "action": "decline" in place of "answer".'
        arguments = {"task_id": task.id, "action": "decline"}
        return f"If the user declines, call {_call(self.tools.answer, arguments)}."


def error_result(text: str) -> dict[str, Any]:
    """Return an error result whose text says what went wrong and what to do."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _task_fields(task: Task) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "task_id": task.id,
        "tool": task.tool.name,
        "status": str(task.status),
        "message": task.status_message,
        "created_at": format_timestamp(task.created_at),
    }
    if task.progress is not None:
        fields |= {"progress": task.progress.done, "total": task.progress.total}
    return {name: value for name, value in fields.items() if value is not None}


def _question_fields(questions: Sequence[InputRequest]) -> list[Json]:
    return [{"key": question.key, **describe_question(question).fields} for question in questions]


def _next(tool: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    return {"tool": tool, "arguments": arguments}


def _call(tool: str, arguments: Mapping[str, Json]) -> str:
    return f"{tool} with {json.dumps(arguments, ensure_ascii=False)}"


def _result(text: str, structured: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured}
