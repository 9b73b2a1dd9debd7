"""What a transport owes a connection, and a connection a transport."""

from typing import Protocol

from raincheck.testing.g1.messages import Message


class Transport(Protocol):
    """What carries messages. What comes is given to the `Inbox` that it was opened with."""

    async def open(self, inbox: "Inbox") -> None: ...

    def settle(self, version: str) -> None:
        """The version of everything that follows."""
        ...

    async def listen(self) -> None:
        """The handshake is over: from now on, the server may send what it likes."""
        ...

    async def send(self, message: Message) -> None: ...

    async def drop(self, request_id: int) -> None:
        """Stop listening for the answer to a request, without a word to the server. For HTTP only."""
        ...

    def listens(self, request_id: int) -> bool:
        """Whether the server still holds the stream open that a request opened."""
        ...

    async def close(self) -> None: ...


class Inbox(Protocol):
    """Where a transport puts what came."""

    def receive(self, message: Message, how: str, of: int | None = None) -> None:
        """A message came, on the stream that a request opened if `of` names one."""
        ...

    def garbage(self, text: str) -> None:
        """Something came that is not a JSON object."""
        ...

    def fail(self, request_id: int, why: str) -> None:
        """A request that will not be answered."""
        ...

    def gone(self, why: str) -> None:
        """Nothing will come any more."""
        ...
