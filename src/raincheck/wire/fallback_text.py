"""The third tier: what a caller without tasks is told of one. The texts are for a model, and name the next call.

A task that has ended is told by its own result, as if the call had waited for it.

What a task asks, in words: for a model whose host can't be asked, and that answers by calling a tool.

Tasks in a few words, for a model or a person to read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, assert_never

from raincheck.core.lifecycle import Phase
from raincheck.core.payload import Json
from raincheck.core.records import InputKind, InputRequest, Task, View
from raincheck.errors import CancelRefused
from raincheck.wire.fallback_tools import PlainTools
from raincheck.wire.fields import as_list, as_object, moment, request_of

LONGEST_TEXT = 240
"""Characters of what somebody else says, in a text that has more to say."""

WORDS = {
    Phase.QUEUED: "is waiting for its turn",
    Phase.PAUSED: "is held back by the operator",
    Phase.COMPLETED: "has completed",
    Phase.FAILED: "has failed",
    Phase.CANCELLED: "was cancelled",
}
"""How a task is, in a phase; else it is still running."""


def described(task: Task, longest: int = LONGEST_TEXT) -> str:
    """A task in a few words, such as "build_report is still running: 3 of 12, crunching"."""
    how = WORDS.get(task.phase, "is still running")
    if task.open_inputs or task.is_error:
        how = "ended with an error" if task.is_error else "waits for an answer"
    far = [] if task.progress is None or task.is_terminal else [_amount(task)]
    said = [] if not task.status_message else [clipped(task.status_message, longest)]
    # Where nobody gave a reason, it only says again what the phase says.
    more = ", ".join(one for one in dict.fromkeys(far + said) if one != task.phase)
    return f"{task.tool.name} {how}{': ' if more else ''}{more}".rstrip(".")


def in_words(seconds: float) -> str:
    """A duration that is easy to read, such as "45 s", "3 min" or "2 h"."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.2g} s" if seconds >= 1 else f"{max(seconds, 0.0) * 1_000:.0f} ms"


def ago(task: Task, now: datetime) -> str:
    """How long ago a task began."""
    return f"{in_words((now - task.created_at).total_seconds())} ago"


def squeezed(text: str, longest: int = LONGEST_TEXT) -> str:
    """Both ends of a text that is too long: what is wrong with a long value is said before or after it."""
    return text if len(text) <= 2 * longest else f"{text[:longest]} … {text[-longest:]}"


def clipped(text: str, longest: int = LONGEST_TEXT) -> str:
    """The beginning of a text that is too long to be read to a model."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _amount(task: Task) -> str:
    assert task.progress is not None  # noqa: S101 - seen before
    total = task.progress.total
    return f"{task.progress.done:g} done" if total is None else f"{task.progress.done:g} of {total:g}"


@dataclass(frozen=True, slots=True)
class SpokenQuestion:
    """A question as a model reads it."""

    text: str
    answer: Json
    """What an answer looks like."""
    facts: dict[str, Any]
    may_decline: bool = True
    """Whether there may be no answer."""


def speak(question: InputRequest) -> SpokenQuestion:
    """The question in words. All of it: nothing else may reach the model."""
    params = request_of(question)["params"]
    message = str(params.get("message", "")).strip()
    match question.kind:
        case InputKind.ELICITATION if "url" in params:
            text = f"Have the user open {params['url']}: {message or 'it has to be done there.'}"
            return SpokenQuestion(text, {}, {"kind": "url", **params})
        case InputKind.ELICITATION:
            schema = as_object(params.get("requestedSchema"))
            return SpokenQuestion(
                f"Ask the user: {message}{_fields_of(schema)}", _example(schema), {"kind": "form", **params}
            )
        case InputKind.SAMPLING:
            facts = {"kind": "reply", **params}
            return SpokenQuestion(f"Reply yourself: {_said(params)}", {"text": "<reply>"}, facts, may_decline=False)
        case InputKind.ROOTS:
            answer: Json = {"roots": [{"uri": "file:///<folder>"}]}
            facts = {"kind": "roots", **params}
            return SpokenQuestion("Name the folders to work in.", answer, facts, may_decline=False)
        case _:
            assert_never(question.kind)


def _fields_of(schema: Mapping[str, Json]) -> str:
    """What a form asks for, field by field."""
    properties, required = as_object(schema.get("properties")), as_list(schema.get("required"))
    fields = [_field(name, as_object(one), is_needed=name in required) for name, one in properties.items()]
    return f" ({'; '.join(fields)})" if fields else ""


def _field(name: str, schema: Mapping[str, Json], *, is_needed: bool) -> str:
    kind = " | ".join(_choices(schema)) or str(schema.get("type", "anything"))
    about = schema.get("description")
    return f"{name}: {kind}{'' if is_needed else ', optional'}{f', {about}' if about else ''}"


def _choices(schema: Mapping[str, Json]) -> list[str]:
    """What there is to choose from, where a field says so: for itself, or for each of several."""
    items = as_object(schema.get("items"))
    if items:
        several = " | ".join(_choices(items)) or str(items.get("type", "anything"))
        return [f"several of {several}"]
    titled = [as_object(one) for name in ("oneOf", "anyOf") for one in as_list(schema.get(name))]
    named = [
        f"{one['const']} ({one['title']})" if "title" in one else str(one["const"]) for one in titled if "const" in one
    ]
    return [*map(str, as_list(schema.get("enum"))), *named]


def _example(schema: Mapping[str, Json]) -> dict[str, Json]:
    properties = as_object(schema.get("properties"))
    named = as_list(schema.get("required")) or list(properties)
    return {str(name): f"<{as_object(properties.get(str(name))).get('type', 'value')}>" for name in named}


def _said(params: Mapping[str, Json]) -> str:
    """What a model is asked to reply to."""
    messages = [as_object(one) for one in as_list(params.get("messages"))]
    texts = [_text_of(one.get("content")) for one in messages]
    if len(texts) > 1:
        texts = [f"{one.get('role')}: {text}" for one, text in zip(messages, texts, strict=True)]
    system = params.get("systemPrompt")
    return "\n".join(texts if system is None else [str(system), *texts])


def _text_of(content: Json) -> str:
    blocks = as_list(content) or [content]
    return " ".join(str(as_object(block).get("text", "")) for block in blocks)


MANY_WAITS = 10
"""What has more waits left than this is not waited for."""

LONGEST_ANSWER = 599
"""Characters of a text, but for a question that takes more: a model has better things to read."""

SHORT = 40
"""Characters of what a body says of itself, in a list."""

BY_ITSELF = "It goes on by itself, also while you do something else"
WHEN_RESUMED = "It goes on when the operator resumes it, and not before"

HANDLE = "raincheck/task"
"""In the `_meta` of an answer that stands for a task: its id."""

TOOLS = "raincheck/tools"
"""There too, for programs that call them: the names of the tools to go on with, by what they are for."""


@dataclass(frozen=True, slots=True)
class Telling:
    """What answers are made with: the names of the tools to go on with, and how long one of them waits."""

    tools: PlainTools
    wait: float
    taken: set[str] = field(default_factory=set[str], compare=False)
    """Names of these that the server's own tools turn out to have. Those are listed and called, and not ours."""

    def unfinished(self, view: View, now: datetime, left: float | None, *, is_asked: bool = False) -> dict[str, Any]:
        """The task has not ended, and has so many seconds left, if anybody knows.

        Where the host has asked the user already, and waits for them, the model need not.
        """
        task = view.task
        if view.inputs and not is_asked:
            return self._asking(task, view.inputs)
        is_held_back = task.phase is Phase.PAUSED
        goes_on = "The user has been asked" if view.inputs else WHEN_RESUMED if is_held_back else BY_ITSELF
        takes = "" if left is None or is_held_back else f", and has about {in_words(left)} left"
        is_long = is_held_back or (left is not None and left > MANY_WAITS * self.wait)
        then = "Tell the user, and get its result later: call" if is_long else "For its result, call"
        arguments = {"task_id": task.id}
        how = described(task, SHORT if view.inputs else LONGEST_TEXT)
        text = (
            f"{how}.\nIt began {ago(task, now)}{takes}. {goes_on}.\n"
            f"{then} {_call(self.tools.wait, arguments)}, which waits up to {in_words(self.wait)}."
        )
        following = _next(self.tools.wait, arguments)
        if not view.inputs:
            return self._answer(text, task, next=following)
        # A host may have closed the question together with the call that it belonged to.
        text = f"{text}\nIf they don't see the question, "
        text += self._ask_instead(task, view.inputs, LONGEST_ANSWER - len(text))
        return self._answer(text, task, questions=_facts_of(view.inputs), next=following)

    def _ask_instead(self, task: Task, waiting: Sequence[InputRequest], longest: int) -> str:
        """How a model asks what its host has asked already. Where that takes long to say, another call says it."""
        spoken = speak(waiting[0])
        call = _call(self.tools.answer, {"task_id": task.id, "answer": spoken.answer})
        instead = f"ask it here. {spoken.text}\nThen call {call}."
        if len(waiting) == 1 and len(instead) <= longest:
            return instead
        return f"call {_call(self.tools.status, {'task_id': task.id})}, which says how to answer it here."

    def status(self, view: View, now: datetime, left: float | None) -> dict[str, Any]:
        """How the task is, ended or not."""
        return self._ended(view.task, "") if view.task.is_terminal else self.unfinished(view, now, left)

    def too_late(self, task: Task) -> dict[str, Any]:
        """The task had ended before it could be stopped."""
        return self._ended(task, "Too late: ")

    def goes_on(self, task: Task, refused: CancelRefused) -> dict[str, Any]:
        """The workflow does not let the task be stopped now."""
        following = _next(self.tools.wait, {"task_id": task.id})
        text = f"{task.tool.name} can't be cancelled ({refused.reason}): {refused.why}. It goes on."
        return self._answer(text, task, next=following)

    def latest(self, tasks: Sequence[Task], now: datetime, tool: str | None) -> dict[str, Any]:
        """An owner's latest tasks, for one who has lost an id."""
        of_tool = "" if tool is None else f" of {clipped(tool)}"
        if not tasks:
            return _told(f"You have no tasks{of_tool}.", {"tasks": []})
        lines = [f"- {task.id}: {described(task, SHORT)} (began {ago(task, now)})" for task in tasks]
        then = f"To go on with one, call {self.tools.wait} with its task_id."
        text = "\n".join((f"Your latest tasks{of_tool}:", *lines, then))
        following = _next(self.tools.wait, {"task_id": tasks[0].id})
        return _told(text, {"tasks": [_facts(task) for task in tasks], "next": following})

    def cancelled(self, task: Task) -> dict[str, Any]:
        """The task was stopped just now."""
        return self._answer(f"{task.tool.name} is cancelled: its work stops, and there will be no result.", task)

    def unknown(self, task_id: str, *, may_list: bool) -> dict[str, Any]:
        """There is no such task, or it is not this caller's."""
        find = f"call {self.tools.status} without a task_id for your latest tasks"
        otherwise = find if may_list else "check the id in the answer that named it, or call the tool again"
        return refused(f"You have no task {clipped(task_id)!r}, or it has been forgotten: {otherwise}.")

    def not_an_answer(self, view: View, why: str) -> dict[str, Any]:
        """What was given is not what the task asks, which it still does."""
        before = f"That is no answer: {squeezed(why, 2 * SHORT)}.\n"
        return {**self._asking(view.task, view.inputs, before), "isError": True}

    def nothing_asked(self, task: Task) -> dict[str, Any]:
        """There is an answer, and the task asks nothing."""
        call = _call(self.tools.wait, {"task_id": task.id})
        return refused(f"{task.tool.name} asks nothing now, and the answer was not used. For its result, call {call}.")

    def not_used(self, task: Task, ended: Mapping[str, Any]) -> dict[str, Any]:
        """The task had ended before there was an answer, with this."""
        note = f"{task.tool.name} had ended before this answer came, which was not used. How it ended:"
        return {**ended, "content": [{"type": "text", "text": note}, *ended["content"]]}

    def _ended(self, task: Task, before: str) -> dict[str, Any]:
        if task.phase is Phase.CANCELLED:
            return self._answer(f"{before}{described(task)}. There is no result.", task)
        arguments = {"task_id": task.id}
        text = f"{before}{described(task)}.\nFor its result, call {_call(self.tools.result, arguments)}."
        return self._answer(text, task, next=_next(self.tools.result, arguments))

    def _asking(self, task: Task, waiting: Sequence[InputRequest], before: str = "") -> dict[str, Any]:
        calls: list[dict[str, Json]] = []
        lines: list[str] = []
        for question in waiting:
            spoken = speak(question)
            which: dict[str, Json] = {"key": question.key} if len(waiting) > 1 else {}
            calls.append({"task_id": task.id, **which, "answer": spoken.answer})
            lines.append(f"{spoken.text}\nThen call {_call(self.tools.answer, calls[-1])}.")
        first, last = f"{before}{task.tool.name} waits for an answer.", self._declines(task, waiting)
        text = "\n".join((first, *lines, *last))
        while len(text) > LONGEST_ANSWER and len(lines) > 1:
            lines.pop()
            text = "\n".join((first, *lines, "It asks more, which you are told then.", *last))
        return self._answer(text, task, questions=_facts_of(waiting), next=_next(self.tools.answer, calls[0]))

    def _answer(self, text: str, task: Task, **more: Json) -> dict[str, Any]:
        meta = {HANDLE: task.id, TOOLS: asdict(self.tools)}
        return _told(text, _facts(task) | more) | {"_meta": meta}

    def _declines(self, task: Task, waiting: Sequence[InputRequest]) -> list[str]:
        """How to say that there is no answer, where there may be none."""
        if not any(speak(question).may_decline for question in waiting):
            return []
        if len(waiting) > 1:
            return ['If they say no to one, call it with "action": "decline" where "answer" is.']
        declined = {"task_id": task.id, "action": "decline"}
        return [f"If they say no, call {_call(self.tools.answer, declined)}."]


def refused(text: str) -> dict[str, Any]:
    """An answer that says what went wrong, and what to do."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _facts(task: Task) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "task_id": task.id,
        "tool": task.tool.name,
        "status": str(task.status),
        "message": task.status_message,
        "created_at": moment(task.created_at),
    }
    if task.progress is not None:
        facts |= {"progress": task.progress.done, "total": task.progress.total}
    return {name: value for name, value in facts.items() if value is not None}


def _facts_of(waiting: Sequence[InputRequest]) -> list[Json]:
    return [{"key": question.key, **speak(question).facts} for question in waiting]


def _next(tool: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    return {"tool": tool, "arguments": arguments}


def _call(tool: str, arguments: Mapping[str, Json]) -> str:
    return f"{tool} with {json.dumps(arguments, ensure_ascii=False)}"


def _told(text: str, structured: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured}
