"""The pydantic models of workflow files.

They describe the parts that pipelines and state machines have in common, the actions of steps and states, pipelines
with their steps, and state machines. Their docstrings are the descriptions in `schema.json`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from raincheck.workflows.parsing.source import parse_duration, parse_size

Value: TypeAlias = Any
"""JSON whose texts may contain `{{ … }}`."""

NAME = r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
HOST = r"^[^/\s]+$"

RESTORED = "restored"
"""The argument with the results of steps that are not run again. Only our own CLI may pass it."""

RESERVED_INPUTS = frozenset({"task", RESTORED})
"""Names that no argument may have: the body of a workflow uses them itself."""


def validate_names(names: dict[str, Any]) -> dict[str, Any]:
    """Refuse keys that are not valid names."""
    for name in names:
        if not re.match(NAME, name):
            raise ValueError(
                f"{name!r} is not a valid name: use up to 64 letters, digits, _ and -, and start with a letter"
            )
    return names


Duration = Annotated[float, BeforeValidator(parse_duration, json_schema_input_type=str | float)]
TimeoutSeconds = Annotated[Duration, Field(ge=0.001)]
Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=str | int)]
Name = Annotated[str, Field(pattern=NAME)]
EnvName = Annotated[str, Field(pattern=ENV_NAME)]
Properties = Annotated[dict[str, Any], AfterValidator(validate_names)]
"""JSON Schemas by name. Each may also contain `required: false`."""


class StrictModel(BaseModel):
    """A model that accepts only known keys, without type coercion."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class AllowModel(StrictModel):
    """The hosts, folders and environment variables that steps may use, besides the file's own folder."""

    hosts: list[Annotated[str, Field(pattern=HOST)]] = []
    """Hosts that http steps may call: `host` or `host:port`."""
    folders: list[str] = []
    """Folders that commands may use as `cwd`, relative to the file's folder."""
    env: list[EnvName] = []
    """Variables that expressions may read as `env.NAME`, and that commands inherit."""


class ServerModel(StrictModel):
    """An MCP server whose tools steps may call: a command (over stdio), or a URL."""

    command: Annotated[list[str], Field(min_length=1)] | None = None
    url: str | None = None
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "ServerModel":
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either a command or a url")
        if self.command is not None and self.headers:
            raise ValueError("only a server with a url has headers")
        return self


class WorkflowModel(StrictModel):
    """The keys that every workflow has."""

    description: str | None = None
    version: str | None = None
    """By default, a digest of the definition."""
    input: Properties = {}
    """The arguments of the tool: JSON Schemas by name."""
    subject: str | None = None
    """The subject of its tasks, such as an order number. Tasks can be listed by subject."""
    timeout: TimeoutSeconds | None = None
    """For the whole task, including the time that it waits."""


class FileModel(StrictModel):
    """A workflow file. Each workflow is validated by the model of its kind."""

    raincheck: Literal[1]
    allow: AllowModel = AllowModel()
    servers: Annotated[dict[str, ServerModel], AfterValidator(validate_names)] = {}
    workflows: Annotated[dict[str, dict[str, Any]], Field(min_length=1), AfterValidator(validate_names)]


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties, which are required unless they declare otherwise."""
    schemas: dict[str, Any] = {}
    required: list[str] = []
    for name, schema in properties.items():
        keys = dict(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else None
        # As a list, it is JSON Schema's own keyword, about nested properties.
        is_required = keys.pop("required") if keys is not None and isinstance(keys.get("required"), bool) else None
        schemas[name] = schema if keys is None else keys
        if is_required or (is_required is None and "default" not in (keys or ())):
            required.append(name)
    return {"type": "object", "properties": schemas, "required": required, "additionalProperties": False}


ActionKind: TypeAlias = Literal["run", "http", "python", "call", "ask", "sample", "workflow", "set", "sleep"]
ACTION_KINDS: tuple[ActionKind, ...] = get_args(ActionKind)

ErrorKind: TypeAlias = Literal[
    "exit", "timeout", "http", "declined", "expression", "not-found", "too-large", "refused", "python", "call", "failed"
]

WITH = frozenset({"python", "workflow"})
"""Kinds of actions that take `with`."""

TAKES_NO_TIMEOUT: Mapping[str, str] = {
    "set": "it takes no time",
    "sleep": "its value is its duration",
    "workflow": "give that workflow its own timeout",
}

Scalar: TypeAlias = str | int | float | bool

FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


def _long_form(value: object) -> object:
    if isinstance(value, str):
        # pydantic reports no type errors.
        message = "a command is a list of arguments, such as [git, status]; a shell script is {shell: …}"
        raise ValueError(message)  # noqa: TRY004
    return {"argv": cast("object", value)} if isinstance(value, list) else value


class RunModel(StrictModel):
    """A command. It inherits PATH, HOME, LANG and the environment variables that the file allows."""

    argv: Annotated[list[Scalar], Field(min_length=1)] | None = None
    shell: str | None = None
    """A constant script for `sh`. Pass values to it through `env`."""
    env: Mapping[EnvName, Scalar] = {}
    cwd: str | None = None
    """The working directory, relative to the file's folder. By default, the file's folder."""
    stdin: Value = None
    output: Literal["text", "json", "lines", "bytes"] = "text"
    """How to decode its standard output; `bytes` returns base64."""
    max_output: Size = 500_000
    ok: Annotated[Sequence[int], Field(min_length=1)] = (0,)
    """Exit codes that mean success."""
    unsafe: bool = False
    """Lifts the rule for values in this command, except that they never choose the program. You have to make sure that
    it does not run them."""

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "RunModel":
        if (self.argv is None) == (self.shell is None):
            raise ValueError("a command has either argv or shell")
        return self


class HttpModel(StrictModel):
    """A request, to a host that the file allows."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: str
    headers: Mapping[str, Scalar] = {}
    body_json: Annotated[Value, Field(alias="json")] = None
    body: str | None = None
    expect: Annotated[list[int], Field(min_length=1)] | None = None
    """Status codes that mean success. By default, 200 to 299."""
    max_body: Size = 500_000

    @model_validator(mode="after")
    def _has_one_body(self) -> "HttpModel":
        if self.body is not None and "body_json" in self.model_fields_set:
            raise ValueError("a request has either json or body")
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
    """A message to a model, or from it."""

    role: Literal["user", "assistant"]
    text: str


class SampleModel(StrictModel):
    """A request to a model."""

    prompt: str | None = None
    messages: Annotated[list[MessageModel], Field(min_length=1)] | None = None
    system: str | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "SampleModel":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("a sample has either a prompt or messages")
        return self


class RetryModel(StrictModel):
    """How often to try, and how long to wait between tries."""

    attempts: Annotated[int, Field(ge=1, le=100)]
    backoff: Duration = 1.0
    factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    on: Annotated[Sequence[ErrorKind], Field(min_length=1)] = ("exit", "timeout", "http", "python", "call", "failed")


class ActionModel(StrictModel):
    """An action of exactly one kind, and how to run it."""

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
    """For each try."""
    artifact: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The name of an artifact that stores the result, readable while the task works."""

    @property
    def kind(self) -> ActionKind:
        return next(kind for kind in ACTION_KINDS if kind in self.model_fields_set)

    @property
    def is_unsafe(self) -> bool:
        return self.run is not None and self.run.unsafe

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> "ActionModel":
        kinds = [kind for kind in ACTION_KINDS if kind in self.model_fields_set]
        if len(kinds) != 1:
            fault = f"it has {' and '.join(kinds)}" if kinds else "it has no action"
            raise ValueError(f"{fault}: give it exactly one of {', '.join(ACTION_KINDS)}")
        kind = kinds[0]
        if kind != "set" and getattr(self, kind) is None:
            raise ValueError(f"{kind} is empty: give it a value")
        if "arguments" in self.model_fields_set and kind not in WITH:
            raise ValueError(f"`with` is only for python and workflow: remove it from {kind}")
        if self.timeout is not None and kind in TAKES_NO_TIMEOUT:
            raise ValueError(f"{kind} takes no timeout: {TAKES_NO_TIMEOUT[kind]}")
        return self


class TransitionModel(StrictModel):
    """A transition out of a state."""

    to: Name
    guard: str | None = None
    """An expression over `input`, `data` and `state`. Unless it evaluates to true, the transition is closed."""
    requires_reason: bool = False
    on: str | None = None
    """An expression that picks the transition by the outcome of the state's action: `result`, `error`, `failed`."""
    set: Mapping[str, Value] = {}
    """Values that the transition adds to the data of the instance."""


class StateTimeoutModel(StrictModel):
    """Takes a transition after the instance has been in the state for a time."""

    after: Duration
    take: Name


class StateModel(StrictModel):
    """A state of a state machine."""

    initial: bool = False
    """Whether instances start in this state. By default, they start in the first one."""
    kind: Literal["success", "failure", "cancel"] | None = None
    """The kind of end, if the state is terminal."""
    action: ActionModel | None = None
    """The action that runs when an instance enters the state."""
    timeout: StateTimeoutModel | None = None
    transitions: Annotated[Mapping[str, TransitionModel], AfterValidator(validate_names)] = {}


class MachineModel(WorkflowModel):
    """A state machine."""

    states: Annotated[Mapping[str, StateModel], AfterValidator(validate_names), Field(min_length=1)]
    output: Value = None
    """The result of an instance that ends in success. By default, its data."""


def _check_on_error(value: object) -> object:
    if isinstance(value, dict) or value in ("fail", "continue"):
        return cast("object", value)
    raise ValueError("it must be fail, continue, or {compensate: ID}")


class CompensateModel(StrictModel):
    """Names the step that undoes this one if the pipeline fails later."""

    compensate: Name


class StepModel(ActionModel):
    """A step of a pipeline."""

    id: Name
    needs: list[Name] | None = None
    """The steps that must end before this one. By default, the previous step in the list; `[]` starts at once."""
    condition: Annotated[str | bool | None, Field(alias="if")] = None
    for_each: str | list[Any] | None = None
    max_parallel: Annotated[int, Field(ge=1, le=100)] | None = None
    min_success_rate: Annotated[float, Field(ge=0, le=1)] = 1.0
    until: str | None = None
    max_rounds: Annotated[int, Field(ge=1, le=1_000)] | None = None
    every: Duration = 0.0
    on_error: Annotated[Literal["fail", "continue"] | CompensateModel, BeforeValidator(_check_on_error)] = "fail"

    @model_validator(mode="after")
    def _has_consistent_options(self) -> "StepModel":
        if self.until is not None and self.max_rounds is None:
            raise ValueError("`until` needs `max_rounds`, so that it ends")
        if self.until is None and not self.model_fields_set.isdisjoint({"max_rounds", "every"}):
            raise ValueError("`max_rounds` and `every` need `until`, which is missing")
        if self.for_each is None and not self.model_fields_set.isdisjoint({"max_parallel", "min_success_rate"}):
            raise ValueError("`max_parallel` and `min_success_rate` need `for_each`, which is missing")
        return self


class PipelineModel(WorkflowModel):
    """A pipeline. Each step starts when the steps that it needs have ended."""

    max_parallel: Annotated[int, Field(ge=1, le=100)] = 4
    """How many steps may run at the same time."""
    steps: Annotated[list[StepModel], Field(min_length=1, max_length=500)]
    output: Value = None
    """The result of the task. By default, the result of the last step."""
