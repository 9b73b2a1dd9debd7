"""A caller of tools whose work may take long: on the SDK's client, for servers of every kind."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack, cast

from mcp.client import Client
from mcp.client.session import IncomingMessage
from mcp.client.stdio import StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult

from raincheck.client.connection import Connection, Lost
from raincheck.client.errors import CallLost
from raincheck.client.handle import Handle
from raincheck.client.options import CallOptions, ClientOptions, Target, can_ask, maker_of, name_of, wrap_callbacks
from raincheck.client.protocols.base import Call, TakesTasks
from raincheck.client.saved_calls import Slip, TaskBook
from raincheck.client.session import Talk
from raincheck.client.tracker import Heard
from raincheck.client.transport_errors import over_http
from raincheck.clock import Clock, SystemClock
from raincheck.errors import ConfigurationError
from raincheck.wire.results import KEY_IN_META

PATIENCE = 60.0
"""Seconds for which a server may be away before a caller is told."""


class TaskClient:
    """Calls tools of one server, however long they take.

        async with TaskClient("http://127.0.0.1:8000/mcp") as client:
            result = await client.call_tool("build_report", {"year": 2026})   # waits for the result
            handle = await client.call("build_report", {"year": 2026})        # does not

    `server` is whatever the SDK's `Client` takes (a URL, `StdioServerParameters`, a transport, a server), or a function
    that makes it anew for each connection; `options` are the SDK's, such as `elicitation_callback=`. It connects when
    it is entered, or fails at once; when the connection breaks later, it connects again, for up to `patience` seconds.
    With a `book`, tasks are written down before anybody waits for them; `name` is what the server is called there, if
    not by its address.
    """

    def __init__(
        self,
        server: Target | Callable[[], Target],
        *,
        book: TaskBook | None = None,
        name: str | None = None,
        patience: float = PATIENCE,
        clock: Clock | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        known = name or name_of(server)
        if known is None and book is not None:
            raise ConfigurationError("this server has no address to find its tasks by: give it a name, with name=…")
        self.name = known or "the server"
        self.book = book
        self._server = server
        self._is_used = False
        self._options = options
        self._clock = clock or SystemClock()
        self._heard = Heard(self._clock)
        connection = Connection(self.name, self._make, patience, self._clock)
        self._talk = Talk(connection, self._heard, lambda method: can_ask(options, method), self._clock)

    async def __aenter__(self) -> Self:
        await self._talk.connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._talk.close()

    async def connected(self) -> Client:
        """The SDK's client, for everything else. It is another one after the connection broke."""
        return await self._talk.connection.client()

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **asked: Unpack[CallOptions]
    ) -> CallToolResult:
        """Call a tool and wait for its result, as the SDK's client does, however long that takes.

        Raises:
            As `call`, and as `Handle.result`.
        """
        return await (await self.call(tool, arguments, **asked)).result()

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **asked: Unpack[CallOptions]) -> Handle:
        """Call a tool, and return as soon as the server has begun with it, or is done.

        With a `key` of your own the server begins it once, however often it is called; so a call that got no answer is
        made again. That takes a server which says that it takes keys from you: one with raincheck, that knows who you
        are. The key is sent to others too, and the call is made once.

        Raises:
            CallLost: the connection broke meanwhile, and there is no key that the server takes.
            ServerUnreachable: there is no connection.
            RequestRefused: the server, or what stands before it, does not take the request.
            MCPError: the server refuses.
            BadAnswer: the server answers with something that is not what the protocol says.
        """
        key = asked.get("key")
        meta = {**(asked.get("meta") or {}), **({} if key is None else {KEY_IN_META: key})}
        call = Call(tool, arguments or {}, meta, asked.get("ttl"), asked.get("progressed"))
        connection = self._talk.connection
        if key is not None and await connection.request(lambda client: self._talk.takes_keys(client, tool)):
            return await connection.request(lambda client: self._begin_by_key(client, call), within=None)
        try:
            return await connection.once(lambda client: self._begin(client, call))
        except Lost as error:
            raise CallLost(self.name, tool, str(error), has_key=key is not None) from error

    def take_up(self, slip: Slip) -> Handle:
        """Go on with a task that was begun earlier, perhaps by a process that is gone."""
        return Handle(self._talk, held=self._heard.hold(slip), book=self.book)

    async def open_calls(self) -> list[Handle]:
        """The tasks of this server in the book: those whose results nobody has fetched yet.

        Raises:
            ConfigurationError: there is no book.
        """
        if self.book is None:
            raise ConfigurationError("this client keeps no book: give it one, with book=TaskBook(path)")
        return [self.take_up(slip) for slip in await self.book.slips(self.name)]

    async def _begin_by_key(self, client: Client, call: Call) -> Handle:
        if not await self._talk.takes_keys(client, call.tool):
            # After a connection that broke there may be another server, which would begin it once more.
            raise CallLost(self.name, call.tool, "the server takes no keys any more", has_key=True)
        return await self._begin(client, call)

    async def _begin(self, client: Client, call: Call) -> Handle:
        begun = await self._talk.begin(client, call)
        if begun.result is not None:
            return Handle(self._talk, result=begun.result)
        slip = Slip(
            server=self.name,
            task_id=begun.task_id,
            tool=call.tool,
            tier=begun.tier,
            tools=dict(begun.tools),
            taken_at=self._clock.now().isoformat(timespec="seconds"),
        )
        if self.book is not None:
            await self._write_down(self.book, slip)
        return Handle(self._talk, held=self._heard.hold(slip, begun.token), book=self.book)

    async def _write_down(self, book: TaskBook, slip: Slip) -> None:
        try:
            await book.add(slip)
        except ConfigurationError as error:
            error.add_note(f"Its task has begun all the same. Take it up with Slip.load({slip.dump()!r})")
            raise

    def _make(self) -> Client:
        make = maker_of(self._server)
        if make is None and self._is_used and not isinstance(self._server, _ANEW):
            raise ConfigurationError(
                "the connection broke, and a transport is good for one: give a function that makes it"
            )
        self._is_used = True
        options = self._options.copy()
        options["extensions"] = [*(options.get("extensions") or ()), TakesTasks(self._heard.changed)]
        options["message_handler"] = self._take_message
        wrap_callbacks(options, self._heard)
        server = cast("Target", self._server) if make is None else make()
        if isinstance(server, str):
            # The SDK would have named it so in a cache, where it does not see the URL now.
            cache = options.get("cache")
            if cache is not None and cache.target_id is None:
                options["cache"] = replace(cache, target_id=server)
            server = over_http(server)
        return Client(server, **options)

    async def _take_message(self, message: IncomingMessage) -> None:
        self._heard.take(message)
        theirs = self._options.get("message_handler")
        if theirs is not None:
            await theirs(message)


_ANEW = (str, StdioServerParameters, Server, MCPServer)
"""What can be connected to again and again."""
