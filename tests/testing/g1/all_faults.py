"""Every fault that is planted."""

import faults_before
import faults_ending
import faults_looking
import faults_talking
from planting import Fault

GROUPS: dict[str, list[Fault]] = {
    "before": faults_before.FAULTS,
    "looking": faults_looking.FAULTS,
    "ending": faults_ending.FAULTS,
    "talking": faults_talking.FAULTS,
}
FAULTS: dict[str, Fault] = {fault.name: fault for faults in GROUPS.values() for fault in faults}
