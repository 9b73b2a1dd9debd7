"""All planted faults."""

from tests.support.conformance.faults import create, end, messages, read
from tests.support.conformance.faults.base import Fault

GROUPS: dict[str, list[Fault]] = {
    "creating": create.FAULTS,
    "reading": read.FAULTS,
    "ending": end.FAULTS,
    "messages": messages.FAULTS,
}
FAULTS: dict[str, Fault] = {fault.name: fault for faults in GROUPS.values() for fault in faults}
