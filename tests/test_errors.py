"""The error tree matches its documentation, and messages say what happened, to what, and what to do."""

import inspect
import re
import sys
from datetime import timedelta

import pytest

import raincheck.errors
from raincheck.errors import (
    AlreadyRecorded,
    CancelRefused,
    CheckpointMismatch,
    IdempotencyConflict,
    IllegalTransition,
    InvalidValue,
    LeaseLost,
    QuotaExceeded,
    RaincheckError,
    SchemaMismatch,
    StaleChange,
    StoreError,
    StoreUnavailable,
    TaskError,
    TaskFailed,
    TaskNotFound,
    TooLarge,
    TransitionRefused,
    WrongState,
)

CLASSES = {
    name: member
    for name, member in vars(raincheck.errors).items()
    if inspect.isclass(member) and raincheck.errors.is_raincheck_error(member)
}


def _drawn() -> dict[str, str | None]:
    """Each class that the docstring draws, and what it is drawn under."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (raincheck.errors.__doc__ or "").splitlines():
        match = re.match(r"^    ((?:[│ ] {3})*)(?:[├└]── )?([A-Z]\w+)(?: {2,}(.*))?$", line)
        if match is None:
            continue
        is_root = "── " not in line
        depth = 0 if is_root else len(match[1]) // 4 + 1
        assert is_root or match[3], f"{match[2]} is drawn without a word about it"
        path[depth:] = [match[2]]
        parents[match[2]] = path[depth - 1] if depth else None
    return parents


def test_the_documented_error_tree_is_the_real_one() -> None:
    real = {name: member.__bases__[0].__name__ for name, member in CLASSES.items()}
    real_tree = {name: None if parent == "Exception" else parent for name, parent in real.items()}
    assert _drawn() == real_tree


def test_the_documented_error_tree_is_complete_and_in_the_order_of_the_code() -> None:
    drawn = _drawn()
    assert set(drawn) == set(CLASSES)
    for module in {member.__module__ for member in CLASSES.values()}:
        here = [
            name
            for name, member in vars(sys.modules[module]).items()
            if inspect.isclass(member) and member.__module__ == module
        ]
        assert [name for name in drawn if name in here] == here


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_a_raincheck_error_with_a_docstring(name: str) -> None:
    error = CLASSES[name]
    assert issubclass(error, RaincheckError)
    assert error.__doc__
    assert re.match(r"[A-Z].*\.$", error.__doc__.splitlines()[0])


def test_an_error_about_a_task_carries_its_id() -> None:
    errors: list[TaskError] = [
        TaskNotFound("task-1"),
        IllegalTransition("task-1", "completed", "cancel"),
        WrongState("task-1", "approve", "draft", "review"),
        TransitionRefused("task-1", "approve", "draft", "its guard is false"),
        CancelRefused("task-1", "not-cancellable", "it has no state for that"),
        LeaseLost("task-1", 3),
        StaleChange("task-1"),
        AlreadyRecorded("task-1", "step 'load' (0)"),
        IdempotencyConflict("task-1", "key"),
        CheckpointMismatch("task-1", "task 'task-1' has another step on record"),
        TaskFailed("task-1", "failed", "it broke", None),
    ]
    assert {type(error) for error in errors} == {error for error in CLASSES.values() if error.__base__ is TaskError}
    for error in errors:
        assert error.task_id == "task-1"
        assert "'task-1'" in str(error)


def test_facts_that_a_program_may_need_are_attributes() -> None:
    illegal = IllegalTransition("task-1", "completed", "cancel")
    assert (illegal.phase, illegal.event) == ("completed", "cancel")
    assert LeaseLost("task-1", 3).attempt == 3
    assert AlreadyRecorded("task-1", "step 'load' (0)").what == "step 'load' (0)"
    assert IdempotencyConflict("task-1", "key").key == "key"
    large = TooLarge("arguments", 2, 1)
    assert (large.what, large.size, large.limit) == ("arguments", 2, 1)
    mismatch = SchemaMismatch("tasks.db", 7, 3)
    assert (mismatch.store, mismatch.found, mismatch.known) == ("tasks.db", 7, 3)


MESSAGES = [
    (TaskNotFound("t"), "task 't' not found: it is unknown, has expired, or is not yours"),
    (IllegalTransition("t", "completed", "cancel"), "task 't' is completed: 'cancel' is not possible; nothing changed"),
    (
        LeaseLost("t", 3),
        "attempt 3 does not hold task 't' (it ended, was never claimed, or another attempt started): stop the work",
    ),
    (StaleChange("t"), "task 't' changed since it was read: read it again and decide again"),
    (AlreadyRecorded("t", "question 'a'"), "task 't' already has question 'a'; nothing was written"),
    (
        IdempotencyConflict("t", "key"),
        "idempotency key 'key' already belongs to task 't', which was created for another tool or other arguments:",
    ),
    (TooLarge("arguments", 2_000_000, 1_000), "arguments has 2,000,000 bytes, and 1,000 are allowed: send less, or "),
    (TooLarge("a name", 9, 5, "characters"), "a name has 9 characters, and 5 are allowed"),
    (QuotaExceeded("live tasks", 5, None), "too many live tasks (at most 5 for one owner): try again when one of them"),
    (QuotaExceeded("new tasks", 5, timedelta(seconds=42)), "(at most 5 for one owner): try again in 42 s"),
    (StoreUnavailable("tasks.db", "it is locked: try again"), "tasks.db: it is locked: try again"),
    (SchemaMismatch("tasks.db", 7, 3), "tasks.db: its schema is version 7, and this raincheck knows versions up to 3"),
]


@pytest.mark.parametrize(("error", "message"), MESSAGES, ids=[type(error).__name__ for error, _ in MESSAGES])
def test_a_message_says_what_happened_and_what_to_do(error: RaincheckError, message: str) -> None:
    assert message in str(error)


def test_an_already_recorded_item_is_named_the_same_everywhere() -> None:
    assert AlreadyRecorded.step("t", "load", 2).what == "step 'load' (2)"
    assert AlreadyRecorded.input_request("t", "a").what == "question 'a'"
    assert str(AlreadyRecorded("t")).startswith("task 't' already has been created; nothing was written")


def test_a_quota_error_says_when_to_retry() -> None:
    quota = QuotaExceeded("new tasks", 5, timedelta(seconds=42))
    assert (quota.which, quota.limit, quota.retry_after) == ("new tasks", 5, timedelta(seconds=42))


@pytest.mark.parametrize("seconds", [0.001, 0.4, 1.4])
def test_a_quota_error_never_suggests_a_retry_that_is_too_early(seconds: float) -> None:
    found = re.search(r"in (\d+) s", str(QuotaExceeded("new tasks", 5, timedelta(seconds=seconds))))
    assert found is not None
    assert int(found[1]) >= seconds


def test_a_bad_value_can_be_caught_as_python_does() -> None:
    assert issubclass(InvalidValue, ValueError)
    with pytest.raises(ValueError, match="arguments"):
        raise TooLarge("arguments", 2, 1)


def test_an_error_of_the_store_names_the_store() -> None:
    for error in CLASSES.values():
        if issubclass(error, StoreError) and error is not SchemaMismatch:
            raised = error("tasks.db", "it broke")
            assert (raised.store, str(raised)) == ("tasks.db", "tasks.db: it broke")
