"""What files of workflows may say, as far as pipelines and state machines have it in common."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from raincheck.errors import InvalidValue
from raincheck.workflows import spans

Value: TypeAlias = Any
"""JSON whose texts may have `{{ … }}` in them."""

NAME = r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
HOST = r"^[^/\s]+$"

RESTORED = "restored"
"""The argument with the results of steps that are not to be run again. Only our own command line may give it."""

RESERVED = frozenset({"task", RESTORED})
"""What no argument may be called: the body of a workflow has these for itself."""


def _seconds(value: object) -> float:
    try:
        return spans.seconds(value)  # type: ignore[arg-type] # it refuses what is neither text nor a number
    except InvalidValue as error:
        raise PydanticCustomError("duration", "{said}", {"said": str(error)}) from error


def _size(value: object) -> int:
    try:
        return spans.size(value)  # type: ignore[arg-type] # likewise
    except InvalidValue as error:
        raise PydanticCustomError("size", "{said}", {"said": str(error)}) from error


def named(names: dict[str, Any]) -> dict[str, Any]:
    """Refuse keys that are no names."""
    for name in names:
        if not re.match(NAME, name):
            raise PydanticCustomError(
                "name", "{name} is no name: use up to 64 letters, digits, _ and -, a letter first", {"name": repr(name)}
            )
    return names


Duration = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=str | float)]
Timeout = Annotated[Duration, Field(ge=0.001)]
Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=str | int)]
Name = Annotated[str, Field(pattern=NAME)]
EnvName = Annotated[str, Field(pattern=ENV_NAME)]
Properties = Annotated[dict[str, Any], AfterValidator(named)]
"""JSON Schemas by name. Each may say `required: false` besides."""


class Model(BaseModel):
    """Takes what it knows and nothing else, each in its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class AllowModel(Model):
    """What steps may reach beyond the folder of their file."""

    hosts: list[Annotated[str, Field(pattern=HOST)]] = []
    """For http steps: `host` or `host:port`."""
    folders: list[str] = []
    """For `cwd` of commands, relative to the file's folder."""
    env: list[EnvName] = []
    """Variables that expressions may read as `env.NAME`, and that commands inherit."""


class ServerModel(Model):
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


class WorkflowModel(Model):
    """What every workflow may say of itself."""

    description: str | None = None
    version: str | None = None
    """A digest of the definition, unless it is given."""
    input: Properties = {}
    """The arguments of the tool: JSON Schemas by name."""
    subject: str | None = None
    """What a task of it is about. Tasks can be listed by it."""
    timeout: Timeout | None = None
    """For the whole task, with all its waiting."""


class FileModel(Model):
    """A file. What each workflow says is looked at by its kind."""

    raincheck: Literal[1]
    allow: AllowModel = AllowModel()
    servers: Annotated[dict[str, ServerModel], AfterValidator(named)] = {}
    workflows: Annotated[dict[str, dict[str, Any]], Field(min_length=1), AfterValidator(named)]


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an object with these properties, which must be there unless they say otherwise."""
    plain: dict[str, Any] = {}
    required: list[str] = []
    for name, schema in properties.items():
        said = dict(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else None
        # As a list it is JSON Schema's own word, about what is within.
        is_required = said.pop("required") if said is not None and isinstance(said.get("required"), bool) else None
        plain[name] = schema if said is None else said
        if is_required or (is_required is None and "default" not in (said or ())):
            required.append(name)
    return {"type": "object", "properties": plain, "required": required, "additionalProperties": False}
