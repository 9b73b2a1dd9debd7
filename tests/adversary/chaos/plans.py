"""What callers call: tools, arguments, and the results that these must have."""

import random
import zlib
from collections.abc import Callable, Mapping

from tests.adversary.chaos.evidence import Plan

Drawing = Callable[[random.Random, str], Plan]


def answer_to(message: str) -> int:
    """The answer to a question: the same for everyone who answers it."""
    return zlib.crc32(message.encode()) % 1_000


def draw_plan(draw: random.Random, key: str, *, jumps: bool) -> Plan:
    """Draw a call. The key is for this call alone. When clocks jump, no task is to be forgotten soon."""
    names = [name for name in PLANS if not (jumps and name == "fleeting")]
    name = draw.choices(names, [PLANS[each][1] for each in names])[0]
    return PLANS[name][0](draw, key)


def _steps(draw: random.Random, key: str) -> Plan:
    del key
    number = draw.randint(1, 8)
    expected = [f"s{each}" for each in range(number)]
    return Plan(tool="steps", arguments={"n": number, "d": draw.choice((0.02, 0.1, 0.4, 1.0))}, expected=expected)


def _ask(draw: random.Random, key: str) -> Plan:
    number = draw.randint(1, 3)
    expected = [answer_to(f"q{each} of {key}?") for each in range(number)]
    return Plan(tool="ask", arguments={"key": key, "n": number}, expected=expected)


def _family(draw: random.Random, key: str) -> Plan:
    del key
    number = draw.randint(1, 4)
    return Plan(tool="family", arguments={"n": number, "d": draw.choice((0.02, 0.3))}, expected=number * (number - 1))


def _chain(draw: random.Random, key: str) -> Plan:
    del key
    return Plan(tool="chain", arguments={"x": draw.randint(1, 99)})


def _nap(draw: random.Random, key: str) -> Plan:
    del key
    return Plan(tool="nap", arguments={"seconds": draw.choice((0.1, 0.6, 2.0))}, expected="s1")


def _flaky(draw: random.Random, key: str) -> Plan:
    del key
    failures = draw.randint(1, 3)
    return Plan(tool="flaky", arguments={"failures": failures}, expected=failures)


def _threaded(draw: random.Random, key: str) -> Plan:
    del key
    number = draw.randint(1, 8)
    return Plan(tool="threaded", arguments={"n": number}, expected=[f"s{each}" for each in range(number)])


def _endless(draw: random.Random, key: str) -> Plan:
    del key
    return Plan(tool=draw.choice(("endless", "spin")), arguments={"n": 60}, expected=60)


def _pay(draw: random.Random, key: str) -> Plan:
    del key
    tool, expected = draw.choice((("pay", "paid"), ("wipe", "wiped")))
    return Plan(tool=tool, arguments={"d": draw.choice((0.05, 0.5, 1.5))}, expected=expected, may_fail=True)


def _bill(draw: random.Random, key: str) -> Plan:
    del draw
    return Plan(tool="bill_once", arguments={"bill": key}, expected=key)


def _fleeting(draw: random.Random, key: str) -> Plan:
    del key
    return Plan(tool="fleeting", arguments={"d": draw.choice((0.02, 0.2))}, expected="s0")


def _shipment(draw: random.Random, key: str) -> Plan:
    return Plan(tool="shipment", arguments={"key": key, "fails": draw.random() < 0.4})


def _review(draw: random.Random, key: str) -> Plan:
    del draw
    return Plan(tool="review", arguments={"key": key})


PLANS: Mapping[str, tuple[Drawing, int]] = {
    "steps": (_steps, 5),
    "ask": (_ask, 5),
    "family": (_family, 4),
    "chain": (_chain, 1),
    "nap": (_nap, 3),
    "flaky": (_flaky, 2),
    "threaded": (_threaded, 3),
    "endless": (_endless, 4),
    "pay": (_pay, 3),
    "bill": (_bill, 2),
    "fleeting": (_fleeting, 1),
    "shipment": (_shipment, 3),
    "review": (_review, 3),
}
"""Calls by name, each with its weight."""
