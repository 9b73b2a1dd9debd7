"""The third tier: what a caller without tasks is told of one. The texts are for a model, and name the next call.

A task that has ended is told by its own result, as if the call had waited for it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from raincheck.core.content import InputRequest, View
from raincheck.core.lifecycle import Phase
from raincheck.core.payload import Json
from raincheck.core.records import Task
from raincheck.wire.plain_tools import PlainTools
from raincheck.wire.spoken import ago, clipped, described, in_words, squeezed
from raincheck.wire.spoken_questions import speak
from raincheck.wire.words import moment

MANY_WAITS = 10
"""What has more waits left than this is not waited for."""

SHORT = 40
"""Characters of what a body says of itself, in a list."""

HANDLE = "raincheck/task"
"""In the `_meta` of an answer that stands for a task: its id."""


@dataclass(frozen=True, slots=True)
class Telling:
    """What answers are made with: the names of the tools to go on with, and how long one of them waits."""

    tools: PlainTools
    wait: float

    def unfinished(self, view: View, now: datetime, left: float | None, *, is_asked: bool = False) -> dict[str, Any]:
        """The task has not ended, and has so many seconds left, if anybody knows.

        Where the host has asked the user already, and waits for them, the model need not.
        """
        task = view.task
        if view.inputs and not is_asked:
            return self._asking(task, view.inputs)
        goes_on = "The user has been asked" if view.inputs else "It goes on by itself, also while you do something else"
        takes = "" if left is None else f", and has about {in_words(left)} left"
        is_long = left is not None and left > MANY_WAITS * self.wait
        then = "Tell the user, and get its result later: call" if is_long else "For its result, call"
        arguments = {"task_id": task.id}
        text = (
            f"{described(task)}.\nIt began {ago(task, now)}{takes}. {goes_on}.\n"
            f"{then} {_call(self.tools.wait, arguments)}, which waits up to {in_words(self.wait)}."
        )
        return _answer(text, task, next=_next(self.tools.wait, arguments))

    def status(self, view: View, now: datetime, left: float | None) -> dict[str, Any]:
        """How the task is, ended or not."""
        return self._ended(view.task, "") if view.task.is_terminal else self.unfinished(view, now, left)

    def too_late(self, task: Task) -> dict[str, Any]:
        """The task had ended before it could be stopped."""
        return self._ended(task, "Too late: ")

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
        return _answer(f"{task.tool.name} is cancelled: its work stops, and there will be no result.", task)

    def unknown(self, task_id: str, *, may_list: bool) -> dict[str, Any]:
        """There is no such task, or it is not this caller's."""
        find = f"call {self.tools.status} without a task_id for your latest tasks"
        otherwise = find if may_list else "check the id in the answer that named it, or call the tool again"
        return refused(f"You have no task {clipped(task_id)!r}, or it has been forgotten: {otherwise}.")

    def not_an_answer(self, view: View, why: str) -> dict[str, Any]:
        """What was given is not what the task asks, which it still does."""
        asking = self._asking(view.task, view.inputs)
        text: str = asking["content"][0]["text"]
        return {**asking, **refused(f"That is no answer: {squeezed(why, 2 * SHORT)}.\n{text}")}

    def _ended(self, task: Task, before: str) -> dict[str, Any]:
        if task.phase is Phase.CANCELLED:
            return _answer(f"{before}{described(task)}. There is no result.", task)
        arguments = {"task_id": task.id}
        text = f"{before}{described(task)}.\nFor its result, call {_call(self.tools.result, arguments)}."
        return _answer(text, task, next=_next(self.tools.result, arguments))

    def _asking(self, task: Task, waiting: Sequence[InputRequest]) -> dict[str, Any]:
        lines, told, calls = [f"{task.tool.name} waits for an answer."], list[Json](), list[dict[str, Json]]()
        declines = False
        for question in waiting:
            spoken = speak(question)
            which: dict[str, Json] = {"key": question.key} if len(waiting) > 1 else {}
            calls.append({"task_id": task.id, **which, "answer": spoken.answer})
            told.append({"key": question.key, **spoken.facts})
            lines.append(f"{spoken.text}\nThen call {_call(self.tools.answer, calls[-1])}.")
            declines = declines or spoken.may_decline
        if declines and len(waiting) == 1:
            declined = {"task_id": task.id, "action": "decline"}
            lines.append(f"If they say no, call {_call(self.tools.answer, declined)}.")
        elif declines:
            lines.append('If they say no to one, call it with "action": "decline" where "answer" is.')
        return _answer("\n".join(lines), task, questions=told, next=_next(self.tools.answer, calls[0]))


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


def _next(tool: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    return {"tool": tool, "arguments": arguments}


def _call(tool: str, arguments: Mapping[str, Json]) -> str:
    return f"{tool} with {json.dumps(arguments, ensure_ascii=False)}"


def _answer(text: str, task: Task, **more: Json) -> dict[str, Any]:
    return _told(text, _facts(task) | more) | {"_meta": {HANDLE: task.id}}


def _told(text: str, structured: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured}
