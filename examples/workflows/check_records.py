"""Checks a file of records, one JSON object a line, and prints what is wrong: `python3 check_records.py FILE`."""

import json
import sys
from pathlib import Path
from typing import Any, cast


def fault_of(line: str) -> str | None:
    """What is wrong with a record; None if nothing is."""
    try:
        value = json.loads(line)
    except ValueError:
        return "is not JSON"
    if not isinstance(value, dict):
        return "is no object"
    record = cast("dict[str, Any]", value)
    if not isinstance(record.get("id"), int):
        return "has no id"
    if not isinstance(record.get("amount"), int | float) or record["amount"] < 0:
        return "has no amount of 0 or more"
    return None


def main(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    faults = ((number, fault_of(line)) for number, line in enumerate(lines, start=1))
    wrong = [f"line {number} {fault}" for number, fault in faults if fault is not None]
    # A few of them will do: what a step comes to is kept with its task.
    json.dump({"records": len(lines), "wrong": wrong[:20]}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
