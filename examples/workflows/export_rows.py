"""Print the rows of a day, one JSON object per line: `python3 export_rows.py DAY`. Real rows would be in a database."""

import json
import sys


def main(day: str) -> None:
    for number in range(1, 4):
        print(json.dumps({"day": day, "order": number, "amount": number * 10}))


if __name__ == "__main__":
    main(sys.argv[1])
