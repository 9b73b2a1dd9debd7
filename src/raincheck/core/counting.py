"""How many tasks there are of a kind, counted one by one. For stores that have no better way."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.records import Task
from raincheck.errors import InvalidValue


def count_live(live: Iterable[Task], scope: Scope) -> dict[Phase, int]:
    """How many of these are in each phase."""
    return dict(Counter(task.phase for task in live if _covers(scope, task)))


def count_states(tasks: Iterable[Task], scope: Scope, now: datetime) -> dict[tuple[str, str], int]:
    """How many processes are in each state, by workflow and state.

    Raises:
        InvalidValue: there is no namespace.
    """
    check_states_scope(scope)
    processes = (task for task in tasks if _covers(scope, task) and not task.is_expired(now))
    return dict(Counter((one.tool.name, one.state.name) for one in processes if one.state is not None))


def check_states_scope(scope: Scope) -> None:
    """Refuse to count states over all namespaces: a workflow of one is none of another.

    Raises:
        InvalidValue: there is no namespace.
    """
    if scope.namespace is None:
        raise InvalidValue("processes are counted within one namespace: name it")


def _covers(scope: Scope, task: Task) -> bool:
    return scope.may_list and scope.covers(task.namespace, task.owner)
