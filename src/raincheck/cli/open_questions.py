"""What a task asks while nobody is there to answer: told together with how to answer it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mcp_types import ElicitRequestFormParams, ElicitRequestParams

from raincheck.cli.arguments import explain
from raincheck.cli.endings import tell
from raincheck.cli.plain import printable
from raincheck.cli.schemas import Schema, as_object
from raincheck.client import Question

SAMPLING = "sampling/createMessage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question."""

    key: str | None
    """What names it in an answer; None where the server asks by itself."""
    method: str
    message: str
    schema: Schema | None = None
    url: str | None = None

    @classmethod
    def of(cls, question: Question) -> Self:
        """One that a task has open."""
        schema, url = question.params.get("requestedSchema"), question.params.get("url")
        return cls(
            key=question.key,
            method=question.method,
            message=question.message or question.method,
            schema=as_object(schema) if schema is not None else None,
            url=None if url is None else str(url),
        )

    @classmethod
    def by_server(cls, params: ElicitRequestParams) -> Self:
        """One that a server asked by itself."""
        is_form = isinstance(params, ElicitRequestFormParams)
        return cls(
            key=None,
            method="elicitation/create",
            message=params.message,
            schema=params.requested_schema if is_form else None,
            url=None if is_form else params.url,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "method": self.method,
            "message": self.message,
            "schema": self.schema,
            "url": self.url,
        }

    def fields(self) -> list[str]:
        """What an answer has to have, in words."""
        if self.method == SAMPLING:
            return ["text=… (string), what a model would reply"]
        if self.schema is None:
            return []
        required = self.schema.get("required") or ()
        return [
            explain(str(name), self.schema, more="" if name in required else ", may be left out")
            for name in as_object(self.schema.get("properties"))
        ]


def tell_questions(tool: str, questions: Sequence[Asked], answer: Callable[..., str]) -> None:
    """Say what is asked, and what to type. `answer` makes the command, with options."""
    for asked in questions:
        tell(f"{printable(tool)} asks: {printable(asked.message)}")
        if asked.url is not None:
            tell(f"  open {printable(asked.url)}")
        for field in asked.fields():
            tell(f"  {printable(field)}")
        key = ["--key", asked.key] if len(questions) > 1 and asked.key is not None else []
        values = " name=value …" if asked.fields() else ""
        tell(f"answer with: {answer(*key)}{values} (or --decline)")
