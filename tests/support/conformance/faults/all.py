"""Every fault that is planted."""

from tests.support.conformance.faults import create, end, messages, read
from tests.support.conformance.faults.base import Fault

GROUPS: dict[str, list[Fault]] = {
    "before": create.FAULTS,
    "looking": read.FAULTS,
    "ending": end.FAULTS,
    "talking": messages.FAULTS,
}
FAULTS: dict[str, Fault] = {fault.name: fault for faults in GROUPS.values() for fault in faults}
