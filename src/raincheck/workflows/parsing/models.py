"""The pydantic models of workflow files.

They describe the parts that pipelines and state machines have in common, the actions of steps and states, pipelines
with their steps, and state machines. Their docstrings are the descriptions in `schema.json`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from raincheck.errors import InvalidValue
from raincheck.workflows.parsing import source

Value: TypeAlias = Any
"""JSON whose texts may contain `{{ … }}`."""

NAME = r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
HOST = r"^[^/\s]+$"

RESTORED = "restored"
"""The argument with the results of steps that are not run again. Only our own CLI may pass it."""

RESERVED_INPUTS = frozenset({"task", RESTORED})
"""Names that no argument may have: the body of a workflow uses them itself."""


def _seconds(value: object) -> float:
    try:
        return source.parse_duration(value)  # type: ignore[arg-type] # it refuses anything but text and numbers
    except InvalidValue as error:
        raise PydanticCustomError("duration", "{said}", {"said": str(error)}) from error


def _size(value: object) -> int:
    try:
        return source.parse_size(value)  # type: ignore[arg-type] # likewise
    except InvalidValue as error:
        raise PydanticCustomError("size", "{said}", {"said": str(error)}) from error


def validate_names(names: dict[str, Any]) -> dict[str, Any]:
    """Refuse keys that are not valid names."""
    for name in names:
        if not re.match(NAME, name):
            raise PydanticCustomError(
                "name", "{name} is no name: use up to 64 letters, digits, _ and -, a letter first", {"name": repr(name)}
            )
    return names


Duration = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=str | float)]
TimeoutSeconds = Annotated[Duration, Field(ge=0.001)]
Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=str | int)]
Name = Annotated[str, Field(pattern=NAME)]
EnvName = Annotated[str, Field(pattern=ENV_NAME)]
Properties = Annotated[dict[str, Any], AfterValidator(validate_names)]
"""JSON Schemas by name. Each may also contain `required: false`."""


class StrictModel(BaseModel):
    """A model that accepts only known keys, without type coercion."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class AllowModel(StrictModel):
    """What steps may reach beyond the folder of their file."""

    hosts: list[Annotated[str, Field(pattern=HOST)]] = []
    """For http steps: `host` or `host:port`."""
    folders: list[str] = []
    """For `cwd` of commands, relative to the file's folder."""
    env: list[EnvName] = []
    """Variables that expressions may read as `env.NAME`, and that commands inherit."""


class ServerModel(StrictModel):
    """An MCP server whose tools steps may call: a command that speaks over stdio, or a URL."""

    command: Annotated[list[str], Field(min_length=1)] | None = None
    url: str | None = None
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "ServerModel":
        if (self.command is None) == (self.url is None):
            raise PydanticCustomError("server", "a server has either a command or a url")
        if self.command is not None and self.headers:
            raise PydanticCustomError("server", "only a server with a url has headers")
        return self


class WorkflowModel(StrictModel):
    """What every workflow may say of itself."""

    description: str | None = None
    version: str | None = None
    """A digest of the definition, unless it is given."""
    input: Properties = {}
    """The arguments of the tool: JSON Schemas by name."""
    subject: str | None = None
    """What a task of it is about. Tasks can be listed by it."""
    timeout: TimeoutSeconds | None = None
    """For the whole task, with all its waiting."""


class FileModel(StrictModel):
    """A file. What each workflow says is looked at by its kind."""

    raincheck: Literal[1]
    allow: AllowModel = AllowModel()
    servers: Annotated[dict[str, ServerModel], AfterValidator(validate_names)] = {}
    workflows: Annotated[dict[str, dict[str, Any]], Field(min_length=1), AfterValidator(validate_names)]


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties, which are required unless they declare otherwise."""
    plain: dict[str, Any] = {}
    required: list[str] = []
    for name, schema in properties.items():
        said = dict(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else None
        # As a list, it is JSON Schema's own keyword, about nested properties.
        is_required = said.pop("required") if said is not None and isinstance(said.get("required"), bool) else None
        plain[name] = schema if said is None else said
        if is_required or (is_required is None and "default" not in (said or ())):
            required.append(name)
    return {"type": "object", "properties": plain, "required": required, "additionalProperties": False}


ActionKind: TypeAlias = Literal["run", "http", "python", "call", "ask", "sample", "workflow", "set", "sleep"]
ACTION_KINDS: tuple[ActionKind, ...] = ("run", "http", "python", "call", "ask", "sample", "workflow", "set", "sleep")

ErrorKind: TypeAlias = Literal[
    "exit", "timeout", "http", "declined", "expression", "not-found", "too-large", "refused", "python", "call", "failed"
]

WITH = frozenset({"python", "workflow"})
"""Kinds of actions that take `with`."""

TAKES_NO_TIMEOUT: Mapping[str, str] = {
    "set": "it takes no time",
    "sleep": "it takes as long as it says",
    "workflow": "give that workflow a timeout of its own",
}

Scalar: TypeAlias = str | int | float | bool

FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


def conflict_error(message: str) -> PydanticCustomError:
    """Return the error of a model whose fields conflict with each other."""
    return PydanticCustomError("together", "{message}", {"message": message})


def _long_form(value: object) -> object:
    if isinstance(value, str):
        raise conflict_error("a command is a list of words, such as [git, status]; a script of sh is {shell: …}")
    return {"argv": cast("object", value)} if isinstance(value, list) else value


class RunModel(StrictModel):
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
            raise conflict_error("a command is either argv or shell")
        return self


class HttpModel(StrictModel):
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
            raise conflict_error("a request has either json or body")
        return self


class CallModel(StrictModel):
    """A tool of another MCP server."""

    server: str
    tool: str
    arguments: Mapping[str, Value] = {}


class AskModel(StrictModel):
    """A question to the caller's user."""

    message: str
    fields: Properties = Field(default={}, alias="schema")


class MessageModel(StrictModel):
    """Something that was said to a model, or by it."""

    role: Literal["user", "assistant"]
    text: str


class SampleModel(StrictModel):
    """Something to ask a model."""

    prompt: str | None = None
    messages: Annotated[list[MessageModel], Field(min_length=1)] | None = None
    system: str | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "SampleModel":
        if (self.prompt is None) == (self.messages is None):
            raise conflict_error("a model is given either a prompt or messages")
        return self


class RetryModel(StrictModel):
    """How often to try, and how long to wait before each further time."""

    attempts: Annotated[int, Field(ge=1, le=100)]
    backoff: Duration = 1.0
    factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    on: Annotated[Sequence[ErrorKind], Field(min_length=1)] = ("exit", "timeout", "http", "python", "call", "failed")


class ActionModel(StrictModel):
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
    timeout: TimeoutSeconds | None = None
    """For one try."""
    artifact: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """A name under which the result can be read while the task works."""

    @property
    def kind(self) -> ActionKind:
        return next(kind for kind in ACTION_KINDS if kind in self.model_fields_set)

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> "ActionModel":
        kinds = [kind for kind in ACTION_KINDS if kind in self.model_fields_set]
        if len(kinds) != 1:
            said = f"this is {' and '.join(kinds)}" if kinds else "this does nothing"
            raise conflict_error(f"{said}: give it exactly one of {', '.join(ACTION_KINDS)}")
        kind = kinds[0]
        if kind != "set" and getattr(self, kind) is None:
            raise conflict_error(f"{kind} says nothing: say what to do")
        if "arguments" in self.model_fields_set and kind not in WITH:
            raise conflict_error(f"`with` is for python and workflow: {kind} does not take it")
        if self.timeout is not None and kind in TAKES_NO_TIMEOUT:
            raise conflict_error(f"{kind} takes no timeout: {TAKES_NO_TIMEOUT[kind]}")
        return self


class TransitionModel(StrictModel):
    """A way out of a state."""

    to: Name
    guard: str | None = None
    """An expression over `input`, `data` and `state`. The transition is closed where it is false, or can't be had."""
    requires_reason: bool = False
    on: str | None = None
    """An expression that picks the transition by what came of the state's action: `result`, `error`, `failed`."""
    set: Mapping[str, Value] = {}
    """What it adds to the data of the process."""


class StateTimeoutModel(StrictModel):
    """Takes a transition when the process has been in the state for so long."""

    after: Duration
    take: Name


class StateModel(StrictModel):
    """A state."""

    initial: bool = False
    """Where processes begin: the first state, unless another says so."""
    kind: Literal["success", "failure", "cancel"] | None = None
    """What kind of end it is, if it is one."""
    action: ActionModel | None = None
    """What is done on entry."""
    timeout: StateTimeoutModel | None = None
    transitions: Annotated[Mapping[str, TransitionModel], AfterValidator(validate_names)] = {}


class MachineModel(WorkflowModel):
    """A state machine."""

    states: Annotated[Mapping[str, StateModel], AfterValidator(validate_names), Field(min_length=1)]
    output: Value = None
    """What a process that ends in success returns: its data, unless this says otherwise."""


def _check_on_error(value: object) -> object:
    if isinstance(value, dict) or value in ("fail", "continue"):
        return cast("object", value)
    raise PydanticCustomError("on_error", "it must be fail, continue, or {example}", {"example": "{compensate: ID}"})


class CompensateModel(StrictModel):
    """What undoes the step, if the pipeline fails later."""

    compensate: Name


class StepModel(ActionModel):
    """A step of a pipeline."""

    id: Name
    needs: list[Name] | None = None
    """The step before it in the list, unless they are named; `[]` begins at once."""
    condition: Annotated[str | bool | None, Field(alias="if")] = None
    for_each: str | list[Any] | None = None
    max_parallel: Annotated[int, Field(ge=1, le=100)] | None = None
    min_success_rate: Annotated[float, Field(ge=0, le=1)] = 1.0
    until: str | None = None
    max_rounds: Annotated[int, Field(ge=1, le=1_000)] | None = None
    every: Duration = 0.0
    on_error: Annotated[Literal["fail", "continue"] | CompensateModel, BeforeValidator(_check_on_error)] = "fail"

    @model_validator(mode="after")
    def _has_what_belongs_together(self) -> "StepModel":
        if self.until is not None and self.max_rounds is None:
            raise conflict_error("`until` needs `max_rounds`, so that it ends")
        if self.until is None and not self.model_fields_set.isdisjoint({"max_rounds", "every"}):
            raise conflict_error("`max_rounds` and `every` are for `until`, which is not there")
        if self.for_each is None and not self.model_fields_set.isdisjoint({"max_parallel", "min_success_rate"}):
            raise conflict_error("`max_parallel` and `min_success_rate` are for `for_each`, which is not there")
        return self


class PipelineModel(WorkflowModel):
    """A pipeline: steps, each of which begins when those it needs have ended."""

    max_parallel: Annotated[int, Field(ge=1, le=100)] = 4
    """Steps side by side."""
    steps: Annotated[list[StepModel], Field(min_length=1, max_length=500)]
    output: Value = None
    """The result of the last step, unless it is given."""
