"""The Python functions that flows.yaml calls. Their subject in the diary is the key that the caller chose."""

from diary import pause, write_surely  # pyright: ignore[reportImplicitRelativeImport] - a file beside the served one

from raincheck import ToolError


def work(key: str, step: str) -> str:
    write_surely(key, 0, "run", step)
    pause(0.02)
    write_surely(key, 0, "ran", step)
    return step


def upload(key: str, fails: bool) -> str:
    write_surely(key, 0, "run", "upload")
    if fails:
        raise ToolError("the upload failed, as its caller wanted")
    return "uploaded"
