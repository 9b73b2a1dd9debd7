"""The base of all errors, and those that a tool's body or whoever puts a program together meets."""


class RaincheckError(Exception):
    """The base of every error that raincheck raises."""


class ToolError(RaincheckError):
    """An error that the caller of the tool should read: the task completes with `content`, or else the message."""

    def __init__(self, message: str, content: object = None) -> None:
        super().__init__(message)
        self.content = content


class ProtocolError(RaincheckError):
    """A JSON-RPC error that the body of a tool chose: the task fails with it, and is not tried again."""

    def __init__(self, message: str, code: int, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class ConfigurationError(RaincheckError):
    """Something was put together in a way that can't work."""
