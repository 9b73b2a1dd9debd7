"""What broke in other task systems, and the tests that keep it from breaking here.

A pitfall whose tests are renamed or removed fails this module, so that none loses its guard unnoticed.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PITFALLS = {
    # Lifecycle and races
    "a late completion overwrites cancelled": ["test_a_late_completion_does_not_overwrite_a_cancel"],
    "a cancel overwrites a finished task": ["test_a_late_cancel_does_not_overwrite_a_completion"],
    "a heartbeat, progress or status write lands after the end": [
        "test_nothing_leads_out_of_an_end",
        "test_a_holder_who_lost_the_task_learns_it_when_it_extends",
    ],
    "the status message of the working phase survives completion": [
        "test_the_message_of_the_working_phase_does_not_survive_completion"
    ],
    "result and status are written in two steps, and a reader sees one without the other": [
        "test_outcome_and_phase_become_visible_at_one_moment",
        "test_a_crash_anywhere_leaves_all_or_nothing",
    ],
    "redelivery and retry together run one attempt twice": ["test_racing_claims_never_get_the_same_task"],
    "a claim without a fence lets the old holder finish": [
        "test_a_stale_worker_cannot_write_to_a_reclaimed_task",
        "test_the_machine_finds_a_planted_bug_in_nine_of_ten_runs",
    ],
    "a reaper that measures from creation kills a task that was just redriven": [
        "test_an_old_task_that_just_began_again_is_left_alone"
    ],
    "an orphan is marked dead, but no final event wakes the waiters": ["test_a_listener_hears_of_every_kind_of_change"],
    "running out of memory leads to endless retry": [
        "test_a_task_that_kills_its_worker_each_time_fails_after_its_attempts"
    ],
    "the user is asked twice": ["test_a_key_is_never_used_again", "test_of_racing_answers_to_one_question_one_counts"],
    "a retry leads out of a terminal state": ["test_nothing_leads_out_of_an_end"],
    "a second cancel breaks something": ["test_of_many_endings_at_once_exactly_one_wins"],
    # Lost results and restarts
    "a task is not found after a restart": ["test_what_was_committed_is_there_after_reopening"],
    # Time
    "seconds are taken for milliseconds": ["test_a_created_task_reads_back_exactly_as_it_was_made"],
    "32-bit overflow near 25 days": ["test_a_month_survives_in_every_duration"],
    "eviction while still working": ["test_a_live_task_never_expires"],
    "expiry that does not wake waiters": ["test_a_listener_hears_of_every_kind_of_change"],
    "expiry checked in one read but not in another": ["test_an_expired_task_looks_exactly_like_an_unknown_one"],
    "advertising less ttl than the task may run": ["test_the_ttl_never_says_less_than_the_task_may_run"],
    "the time of the last update is now at every poll": [
        "test_reading_changes_nothing",
        "test_nothing_touches_the_time_of_the_last_change_but_a_change",
        "test_an_extended_lease_ends_later_and_nothing_else_changes",
    ],
    "a clock that jumps": [
        "test_a_clock_that_jumps_back_does_not_take_the_task_with_it",
        "test_a_clock_that_jumps_ahead_costs_a_lease_and_not_the_task",
    ],
    # Memory and resources
    "a store that grows without bound": [
        "test_pruning_forgets_everything_that_belongs_to_a_task",
        "test_the_log_keeps_only_the_newest_and_says_so_to_who_is_too_far_behind",
    ],
    "a subscriber that stops reading": ["test_a_slow_listener_is_told_of_more_than_it_can_name"],
    "many servers on one file: lock errors, a log that never shrinks": [
        "test_eight_processes_share_a_file_and_one_of_them_is_killed",
        "test_the_log_is_moved_into_the_file_when_it_is_large_and_when_it_is_quiet",
    ],
    "list cursors that drift under inserts": [
        "test_paging_shows_each_task_that_existed_throughout_exactly_once",
        "test_a_place_in_the_list_outlives_the_task_it_names",
    ],
    # Auth and secrets
    "another tenant's id can be told from an unknown one": [
        "test_another_owners_task_looks_exactly_like_an_unknown_one"
    ],
    "owner names that contain the key separator": ["test_an_owners_name_may_have_any_characters"],
    "quotas that count, then write": [
        "test_racing_creates_cannot_both_take_the_last_place",
        "test_handles_that_race_for_the_last_place_in_a_quota_do_not_both_get_it",
    ],
}


@pytest.fixture(scope="module")
def tests() -> set[str]:
    folders = (ROOT / "tests", ROOT / "src/raincheck/testing")
    files = (file for folder in folders for file in folder.rglob("*.py"))
    return {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}


@pytest.mark.parametrize("pitfall", PITFALLS)
def test_each_pitfall_has_its_tests(pitfall: str, tests: set[str]) -> None:
    assert PITFALLS[pitfall]
    assert set(PITFALLS[pitfall]) <= tests
