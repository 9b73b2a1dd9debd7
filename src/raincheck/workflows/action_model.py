"""What files may say of something to do: a step of a pipeline, or what a state machine does in a state."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from raincheck.workflows.common_model import Duration, EnvName, Model, Name, Properties, Size, Timeout, Value

Kind: TypeAlias = Literal["run", "http", "python", "call", "ask", "sample", "workflow", "set", "sleep"]
KINDS: tuple[Kind, ...] = ("run", "http", "python", "call", "ask", "sample", "workflow", "set", "sleep")

ErrorKind: TypeAlias = Literal[
    "exit", "timeout", "http", "declined", "expression", "not-found", "too-large", "refused", "python", "call", "failed"
]

WITH = frozenset({"python", "workflow"})
"""Kinds that take `with`."""

TAKES_NO_TIMEOUT: Mapping[str, str] = {
    "set": "it takes no time",
    "sleep": "it takes as long as it says",
    "workflow": "give that workflow a timeout of its own",
}

Scalar: TypeAlias = str | int | float | bool

FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


def refused(message: str) -> PydanticCustomError:
    """What a model says that finds its fields at odds with each other."""
    return PydanticCustomError("together", "{message}", {"message": message})


def _long_form(value: object) -> object:
    if isinstance(value, str):
        raise refused("a command is a list of words, such as [git, status]; a script of sh is {shell: …}")
    return {"argv": cast("object", value)} if isinstance(value, list) else value


class RunModel(Model):
    """A command. What it inherits of the environment is PATH, HOME, LANG and what the file allows."""

    argv: Annotated[list[Scalar], Field(min_length=1)] | None = None
    shell: str | None = None
    """A script for `sh`, as it stands: values reach it by `env`."""
    env: Mapping[EnvName, Scalar] = {}
    cwd: str | None = None
    """Relative to the file's folder, which it is by default."""
    stdin: Value = None
    output: Literal["text", "json", "lines", "bytes"] = "text"
    """How to read what it writes; bytes are given in base64."""
    max_output: Size = 500_000
    ok: Annotated[Sequence[int], Field(min_length=1)] = (0,)
    """Exit codes that are no errors."""

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "RunModel":
        if (self.argv is None) == (self.shell is None):
            raise refused("a command is either argv or shell")
        return self


class HttpModel(Model):
    """A request, to a host that the file allows."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: str
    headers: Mapping[str, Scalar] = {}
    body_json: Annotated[Value, Field(alias="json")] = None
    body: str | None = None
    expect: Annotated[list[int], Field(min_length=1)] | None = None
    """Status codes that are no errors; 200 to 299 by default."""
    max_body: Size = 500_000

    @model_validator(mode="after")
    def _has_one_body(self) -> "HttpModel":
        if self.body is not None and "body_json" in self.model_fields_set:
            raise refused("a request has either json or body")
        return self


class CallModel(Model):
    """A tool of another MCP server."""

    server: str
    tool: str
    arguments: Mapping[str, Value] = {}


class AskModel(Model):
    """A question to the caller's user."""

    message: str
    fields: Properties = Field(default={}, alias="schema")


class MessageModel(Model):
    """Something that was said to a model, or by it."""

    role: Literal["user", "assistant"]
    text: str


class SampleModel(Model):
    """Something to ask a model."""

    prompt: str | None = None
    messages: Annotated[list[MessageModel], Field(min_length=1)] | None = None
    system: str | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "SampleModel":
        if (self.prompt is None) == (self.messages is None):
            raise refused("a model is given either a prompt or messages")
        return self


class RetryModel(Model):
    """How often to try, and how long to wait before each further time."""

    attempts: Annotated[int, Field(ge=1, le=100)]
    backoff: Duration = 1.0
    factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    on: Annotated[Sequence[ErrorKind], Field(min_length=1)] = ("exit", "timeout", "http", "python", "call", "failed")


class ActionModel(Model):
    """Something to do, of one kind, and how to go about it."""

    run: Annotated[RunModel, BeforeValidator(_long_form, json_schema_input_type=list[Scalar] | RunModel)] | None = None
    http: HttpModel | None = None
    python: Annotated[str, Field(pattern=FUNCTION)] | None = None
    call: CallModel | None = None
    ask: AskModel | None = None
    sample: SampleModel | None = None
    workflow: Name | None = None
    set: Value = None
    sleep: Scalar | None = None
    arguments: Mapping[str, Value] = Field(default={}, alias="with")
    """For python and workflow."""
    retry: RetryModel | None = None
    timeout: Timeout | None = None
    """For one try."""
    artifact: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """A name under which the result can be read while the task works."""

    @property
    def kind(self) -> Kind:
        return next(kind for kind in KINDS if kind in self.model_fields_set)

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> "ActionModel":
        kinds = [kind for kind in KINDS if kind in self.model_fields_set]
        if len(kinds) != 1:
            said = f"this is {' and '.join(kinds)}" if kinds else "this does nothing"
            raise refused(f"{said}: give it exactly one of {', '.join(KINDS)}")
        kind = kinds[0]
        if kind != "set" and getattr(self, kind) is None:
            raise refused(f"{kind} says nothing: say what to do")
        if "arguments" in self.model_fields_set and kind not in WITH:
            raise refused(f"`with` is for python and workflow: {kind} does not take it")
        if self.timeout is not None and kind in TAKES_NO_TIMEOUT:
            raise refused(f"{kind} takes no timeout: {TAKES_NO_TIMEOUT[kind]}")
        return self
