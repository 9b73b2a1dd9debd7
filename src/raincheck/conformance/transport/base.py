"""One connection to a server, in raw JSON-RPC: it keeps each message as it came, and answers what it is asked."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager

from raincheck.conformance.messages import VERSION, Came, History, Message, Pending, Reply, Transport, shorten
from raincheck.conformance.outcome import Gone, Trouble

Answerer = Callable[[Message], Message]


class Connection:
    """One client of the server: numbers its requests, keeps all that came, answers what it is asked."""

    def __init__(
        self, transport: Transport, answers: Mapping[str, Answerer], patience: float, history: History
    ) -> None:
        self.history = history
        self._began = len(history.came)
        self._refused: list[str] = []
        self.initialized: Message = {}
        self.patience = patience
        self._transport = transport
        self._answers: dict[str, Answerer] = {"ping": lambda _: {}, **answers}
        self._held: set[str] = set()
        self._pending: dict[int, Pending] = {}
        self._news = asyncio.Event()
        self._why_gone: str | None = None
        self._jobs: set[asyncio.Task[None]] = set()

    async def open(self, capabilities: Message) -> None:
        """Say hello. Raises `Trouble` if the server can't be reached, or does not answer as one."""
        client = {"name": "raincheck-conformance", "version": "1"}
        hello = {"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": client}
        await self._transport.open(self)
        reply = await self.request("initialize", hello)
        if reply.result is None:
            raise Trouble(f"initialize was answered with {reply}")
        self.initialized = reply.result
        self._transport.settle(str(self.initialized.get("protocolVersion", VERSION)))
        await self.notify("notifications/initialized")
        await self._transport.listen()

    async def close(self) -> None:
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        await self._transport.close()
        self.gone("the connection was closed")

    async def request(self, method: str, params: Message | None = None) -> Reply:
        """Send a request and wait for its answer."""
        return await self.reply_to(await self.send(method, params))

    async def send(self, method: str, params: Message | None = None) -> Pending:
        """Send a request, and leave its answer for later."""
        self._raise_if_gone()
        self.history.last_id += 1
        pending = Pending(self.history.last_id, method, time.monotonic(), asyncio.get_running_loop().create_future())
        self._pending[pending.id] = pending
        message = {"jsonrpc": "2.0", "id": pending.id, "method": method}
        await self._put(message if params is None else {**message, "params": params})
        return pending

    async def reply_to(self, pending: Pending, patience: float | None = None) -> Reply:
        patience = self.patience if patience is None else patience
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(pending.reply)
        except TimeoutError:
            raise Trouble(f"{pending.method} was not answered within {patience:g} s{self._note()}") from None

    async def notify(self, method: str, params: Message | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method}
        await self._put(message if params is None else {**message, "params": params})

    async def drop(self, pending: Pending) -> None:
        """Break the connection that an answer would come on, as a network may."""
        self._forget(pending.id)
        await self._transport.drop(pending.id)

    def stream_of(self, pending: Pending) -> tuple[bool, list[Message]]:
        """Whether the stream that a request opened is still open, and what came on it."""
        came = [one.message for one in self.history.came if one.of == pending.id]
        return self._transport.listens(pending.id), came

    async def answer(self, asked: Message, result: Message) -> None:
        """Answer a request of the server that was held back."""
        await self._put({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    @contextmanager
    def holding(self, method: str) -> Generator[None]:
        """Requests of this kind are not answered by themselves meanwhile."""
        self._held.add(method)
        try:
            yield
        finally:
            self._held.discard(method)

    def mark(self) -> int:
        """A place in what came, for `since`."""
        return len(self.history.came)

    def since(self, mark: int, method: str) -> list[Came]:
        """The requests and notifications of a method that came after a place."""
        return [one for one in self.history.came[mark:] if one.message.get("method") == method]

    def asked_since(self, mark: int, method: str) -> list[Came]:
        """The requests of a method after a place. One that had come before it is only sent again."""
        # Not those of connections before this one: a server may count its requests from the first again.
        before = [one.message for one in self.history.came[self._began : mark]]
        return [one for one in self.since(mark, method) if one.message not in before]

    async def hear(self, method: str, mark: int) -> Message:
        """The first such request, waiting for it if need be."""

        def found() -> Message | None:
            return next((came.message for came in self.asked_since(mark, method)), None)

        return await self.wait_for(found, f"no {method} came")

    async def wait_for(self, found: Callable[[], Message | None], otherwise: str) -> Message:
        """What `found` gives, looked for again with each message that comes."""
        try:
            async with asyncio.timeout(self.patience):
                while (message := found()) is None:
                    self._raise_if_gone()
                    self._news.clear()
                    await self._news.wait()
                return message
        except TimeoutError:
            raise Trouble(f"{otherwise} within {self.patience:g} s{self._note()}") from None

    @property
    def unanswered(self) -> list[Pending]:
        return [one for one in self._pending.values() if not one.is_answered]

    def receive(self, message: Message, how: str, of: int | None = None) -> None:
        self.history.came.append(Came(message, how, of))
        self._news.set()
        if "method" in message:
            if "id" in message and message["method"] not in self._held:
                self._spawn(self._answer(message))
            return
        request_id = message.get("id")
        pending = self._pending.pop(request_id, None) if type(request_id) is int else None
        if pending is not None and not pending.is_answered:
            pending.reply.set_result(Reply(pending.method, message, how))

    def garbage(self, text: str) -> None:
        self.history.rubbish.append(text)

    def fail(self, request_id: int, why: str) -> None:
        if (pending := self._forget(request_id)) is not None and not pending.is_answered:
            kind = Trouble if self._why_gone is None else Gone
            pending.reply.set_exception(kind(f"{pending.method} was not answered: {why}"))
            # Not every request is waited for: what nobody hears is no error of ours.
            pending.reply.exception()

    def gone(self, why: str) -> None:
        self._why_gone = self._why_gone or why
        for request_id in list(self._pending):
            self.fail(request_id, self._why_gone)
        self._news.set()

    async def _answer(self, asked: Message) -> None:
        answerer = self._answers.get(asked["method"])
        if answerer is not None:
            await self.answer(asked, answerer(asked.get("params") or {}))
            return
        error = {"code": -32601, "message": f"this client does not know {asked['method']}"}
        await self._put({"jsonrpc": "2.0", "id": asked["id"], "error": error})

    async def _put(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self.patience):
                await self._transport.send(message)
        except TimeoutError:
            what = message.get("method", "an answer to its request")
            raise Trouble(f"the server did not take {what} within {self.patience:g} s") from None

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except Trouble as trouble:
                self._refused.append(str(trouble))

        job = asyncio.create_task(run())
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def _forget(self, request_id: int) -> Pending | None:
        return self._pending.pop(request_id, None)

    def _raise_if_gone(self) -> None:
        if self._why_gone is not None:
            raise Gone(self._why_gone)

    def _note(self) -> str:
        if self._refused:
            return f" ({self._refused[-1]})"
        return f" (it sent what is no message: {shorten(self.history.rubbish[-1])})" if self.history.rubbish else ""
