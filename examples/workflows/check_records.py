"""Check a file of records, one JSON object per line, and print the errors: `python3 check_records.py FILE`."""

import json
import sys
from pathlib import Path
from typing import Any, cast


def error_in(line: str) -> str | None:
    """Return what is wrong with a record, or None if it is valid."""
    try:
        value = json.loads(line)
    except ValueError:
        return "is not JSON"
    if not isinstance(value, dict):
        return "is not an object"
    record = cast("dict[str, Any]", value)
    if not isinstance(record.get("id"), int):
        return "has no id"
    if not isinstance(record.get("amount"), int | float) or record["amount"] < 0:
        return "has no amount of 0 or more"
    return None


def main(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    errors = ((number, error_in(line)) for number, line in enumerate(lines, start=1))
    wrong = [f"line {number} {error}" for number, error in errors if error is not None]
    # Only the first errors: the result of a step is stored with its task.
    json.dump({"records": len(lines), "wrong": wrong[:20]}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
