"""Answering what a task asks, without waiting for what becomes of it."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

import typer
from mcp.shared.exceptions import MCPError

from raincheck.cli.arguments import check_arguments, read_arguments, read_files
from raincheck.cli.endings import Ending, Unusable, refuse, tell
from raincheck.cli.following import updates_of
from raincheck.cli.holding import taken_up
from raincheck.cli.open_questions import SAMPLING, Asked
from raincheck.cli.plain import printable
from raincheck.cli.wishes import Wishes
from raincheck.client import Handle, Question, Update, by_hand
from raincheck.core.lifecycle import Status
from raincheck.errors import InvalidValue

Words = list[str | dict[str, Any]]

TAKEN_WITHIN = 10.0
"""Seconds for a server to take an answer. Some ask only while somebody waits."""


async def answer_task(given: str, values: list[str], action: str, key: str | None, wishes: Wishes) -> Ending:
    """Answer one question of a task."""
    words = read_files(values)
    async with taken_up(given, wishes, asked=by_hand) as (handle, manner):
        try:
            async with asyncio.timeout(TAKEN_WITHIN):
                answered = await _answer(handle, words, action, key)
        except TimeoutError:
            refuse("the server did not ask, or did not take the answer, in time: try again", as_json=wishes.as_json)
        except (MCPError, InvalidValue) as error:
            why = error.error.message if isinstance(error, MCPError) else str(error)
            refuse(f"the server refuses the answer: {printable(why)}", as_json=wishes.as_json, ending=Ending.FAILED)
        assert handle.slip is not None  # noqa: S101 - it is a task
        if wishes.as_json:
            typer.echo(json.dumps({"task_id": handle.slip.task_id, "key": answered, "action": action}, indent=2))
        tell(f"answered. {manner.again('wait', handle.slip.task_id)} waits for what becomes of it")
        return Ending.DONE


async def _answer(handle: Handle, values: Words, action: str, key: str | None) -> str:
    """Answer, and return the key of the question."""
    answered: str | None = None
    async with aclosing(updates_of(handle)) as updates:
        async for update in updates:
            open_keys = {question.key for question in update.questions}
            # A server that asks by itself has the answer when it asks no more, or something else: what is on its way to
            # it would be lost if this ended.
            is_taken = answered not in open_keys and (bool(open_keys) or not update.asks_itself)
            if answered is not None and (update.status is not Status.INPUT_REQUIRED or is_taken):
                return answered
            if answered is None and (update.questions or update.status is not Status.INPUT_REQUIRED):
                question = _choose(update, key)
                await handle.answer({question.key: _made(question, values, action)})
                answered = question.key
    if answered is None:
        raise Unusable("the task has ended, and asks nothing")
    return answered


def _choose(update: Update, key: str | None) -> Question:
    keys = ", ".join(f"{question.key} ({question.message})" for question in update.questions)
    if not update.questions:
        raise Unusable(f"the task asks nothing just now: it is {update.status}")
    if key is None and len(update.questions) > 1:
        raise Unusable(f"the task asks several things: say which by --key, one of {printable(keys)}")
    found = [question for question in update.questions if key is None or question.key.startswith(key)]
    if len(found) != 1:
        raise Unusable(f"no single question has the key {key!r}: the task asks {printable(keys)}")
    return found[0]


def _made(question: Question, values: Words, action: str) -> dict[str, Any]:
    asked = Asked.of(question)
    if asked.method == SAMPLING:
        return _reply(values, action)
    if asked.method != "elicitation/create":
        raise Unusable(f"this command can't answer {asked.method}")
    if action != "accept":
        return {"action": action}
    schema = asked.schema or {}
    content = read_arguments(values, schema)
    check_arguments("it", content, schema, verb="answered")
    return {"action": action} if asked.schema is None else {"action": action, "content": content}


def _reply(values: Words, action: str) -> dict[str, Any]:
    """What a model would have said."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    if action != "accept":
        raise Unusable("a model is asked, which can't decline: give text=…, or cancel the task")
    content = read_arguments(values, schema)
    check_arguments("it", content, schema, verb="answered")
    return {"role": "assistant", "model": "human", "content": {"type": "text", "text": content["text"]}}
