"""What a task keeps of the call it came from, and how its body gets to see it in another process, days later.

Never a token: who was verified is kept, not what they were verified by.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, cast

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types import ClientCapabilities
from opentelemetry import propagate, trace
from opentelemetry.context import Context

from raincheck.core.content import InputKind
from raincheck.core.payload import Json
from raincheck.server.owners import verified_token
from raincheck.server.sdk import AnyContext
from raincheck.wire.words import as_object

_acting: ContextVar[bool] = ContextVar("raincheck_acting", default=False)
_tracer = trace.get_tracer("raincheck")
_UNTRACED = nullcontext()

ANSWERED_IN_WORDS: Mapping[str, Json] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
"""What a caller can be asked that answers by calling a tool, whatever its host can do."""


def describe_caller(ctx: AnyContext, answers: Json = None, *, in_words: bool = False) -> dict[str, Json]:
    """What to keep of a call: who made it, what they can be asked, what they have answered, and its trace."""
    trace_context: dict[str, Json] = {}
    propagate.inject(trace_context)
    told: dict[str, Json] = {"identity": _identity(ctx), "trace": trace_context, "answers": answers}
    known = {name: value for name, value in told.items() if value}
    declared = declared_capabilities(ctx.session.client_capabilities)
    return {**known, "capabilities": _with_words(declared) if in_words else declared}


def _with_words(declared: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a caller can be asked one way or the other."""
    both = {kind: {**as_object(ways), **as_object(declared.get(kind))} for kind, ways in ANSWERED_IN_WORDS.items()}
    return {**declared, **both}


def _identity(ctx: AnyContext) -> Json:
    token = verified_token(ctx)
    if token is None:
        return None
    # Of the SDK's own fields: a verifier's own kind of token may carry the raw one, or others.
    kept = set(AccessToken.model_fields) - {"token"}
    return cast("Json", token.model_dump(mode="json", exclude_none=True, include=kept))


def declared_capabilities(declared: ClientCapabilities | None) -> Mapping[str, Json]:
    """What a caller said it can be asked."""
    if declared is None or not (declared.elicitation or declared.sampling or declared.roots):
        return {}
    kinds = {str(kind) for kind in InputKind}
    return declared.model_dump(mode="json", by_alias=True, exclude_none=True, include=kinds)


def capabilities_of(caller: Json) -> ClientCapabilities:
    """What the caller of a task can be asked."""
    return ClientCapabilities.model_validate(_part(caller, "capabilities"))


def answers_of(caller: Json) -> Mapping[str, Any]:
    """What the caller answered before the task began: the end of the rounds of its call."""
    return _part(caller, "answers")


def is_acting() -> bool:
    """Whether this is the body of a task."""
    return _acting.get()


class ActingFor:
    """Lets the SDK's `get_access_token` tell who called, and puts spans where the call was made.

    Always both, so that a body never sees what an earlier one left.
    """

    __slots__ = ("_acting_before", "_before", "_span", "_user")

    def __init__(self, caller: Json, task_id: str, tool: str) -> None:
        identity = _part(caller, "identity")
        self._user = AuthenticatedUser(AccessToken.model_validate({"token": "", **identity})) if identity else None
        self._span = _traced(_part(caller, "trace"), task_id, tool)

    def __enter__(self) -> None:
        self._before, self._acting_before = auth_context_var.set(self._user), _acting.set(True)
        try:
            self._span.__enter__()
        except BaseException:
            self._leave()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:  # noqa: ANN401 - as they are
        try:
            self._span.__exit__(kind, error, trace)
        finally:
            self._leave()

    def _leave(self) -> None:
        auth_context_var.reset(self._before)
        _acting.reset(self._acting_before)


def _traced(told: Mapping[str, Any], task_id: str, tool: str) -> AbstractContextManager[object]:
    """A span under the one that the call was made in. Nothing where nobody traces: quick bodies would notice."""
    if not told and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _UNTRACED
    context = propagate.extract(told, Context()) if told else Context()
    attributes = {"raincheck.task.id": task_id, "gen_ai.tool.name": tool}
    return _tracer.start_as_current_span(f"task {tool}", context, trace.SpanKind.CONSUMER, attributes)


def _part(caller: Json, name: str) -> Mapping[str, Any]:
    # What JSON makes of an object. To ask for any mapping takes four times as long.
    part = caller.get(name) if isinstance(caller, dict) else None
    return part if isinstance(part, dict) else {}
