"""What broke in other task systems, and the tests that keep it from breaking here.

A pitfall whose tests are renamed or removed fails this module, so that none loses its guard unnoticed.
"""

import re

import pytest

from tests.support import ROOT

PITFALLS = {
    # Lifecycle and races
    "a late completion overwrites cancelled": [
        "test_a_late_completion_does_not_overwrite_a_cancel",
        "test_a_cancel_just_before_the_completion_wins_and_the_result_is_dropped",
    ],
    "a cancel overwrites a finished task": [
        "test_a_late_cancel_does_not_overwrite_a_completion",
        "test_a_completion_just_before_the_cancel_wins_and_the_cancel_is_rejected",
    ],
    "a heartbeat, progress or status write lands after the end": [
        "test_a_terminal_task_accepts_no_command",
        "test_extending_a_lost_lease_reports_that_it_is_lost",
        "test_a_report_after_the_end_is_rejected_and_changes_nothing",
        "test_a_thread_that_a_plain_body_left_behind_can_write_nothing",
        "test_a_branch_that_a_coroutine_left_behind_is_stopped_at_its_next_call",
    ],
    "the status message of the working phase survives completion": [
        "test_the_message_of_the_working_phase_does_not_survive_completion",
        "test_the_status_message_is_cleared_on_completion",
    ],
    "result and status are written in two steps, and a reader sees one without the other": [
        "test_outcome_and_phase_become_visible_at_one_moment",
        "test_a_crash_anywhere_leaves_all_or_nothing",
        "test_a_result_whose_confirmation_was_lost_is_written_once",
    ],
    "redelivery and retry together run one attempt twice": [
        "test_racing_claims_never_get_the_same_task",
        "test_a_process_that_is_killed_repeatedly_loses_nothing_and_repeats_no_recorded_step",
    ],
    "a claim without a fence lets the old holder finish": [
        "test_a_stale_worker_cannot_write_to_a_reclaimed_task",
        "test_the_state_machine_finds_a_planted_bug_in_all_runs_but_one",
        "test_a_body_that_lost_its_lease_is_stopped_and_the_next_attempt_continues",
    ],
    "a reaper that measures from creation kills a task that was just redriven": [
        "test_an_old_task_that_was_just_claimed_is_neither_swept_nor_pruned"
    ],
    "an orphan is marked dead, but no final event wakes the waiters": [
        "test_the_change_feed_reports_every_kind_of_change",
        "test_a_task_that_must_not_run_twice_fails_when_it_is_interrupted",
        "test_a_parked_task_ends_at_its_deadline",
    ],
    "running out of memory leads to endless retry": [
        "test_a_task_whose_worker_dies_in_every_attempt_fails_after_the_last",
        "test_a_task_that_kills_its_process_each_time_fails_after_its_attempts",
    ],
    "the user is asked twice": [
        "test_a_key_is_never_used_again",
        "test_one_of_several_racing_answers_counts",
        "test_a_slow_answer_finds_the_task_parked_and_the_question_is_not_repeated",
        "test_a_question_repeated_after_a_crash_of_the_body_is_the_same_one",
    ],
    "a repeated tasks/result while input is required asks twice": [
        "test_of_two_waits_on_one_connection_one_is_asked_and_both_get_the_result",
        "test_of_two_connections_of_one_owner_one_is_asked_and_both_get_the_result",
        "test_a_request_for_the_result_that_is_repeated_again_and_again_asks_once",
        "test_of_many_questions_each_is_asked_of_one",
        "test_a_refusal_outlives_a_server_that_is_killed",
    ],
    "a retry leads out of a terminal state": ["test_a_terminal_task_accepts_no_command"],
    "a second cancel breaks something": [
        "test_exactly_one_of_many_concurrent_endings_wins",
        "test_a_second_cancel_is_rejected_and_changes_nothing",
        "test_concurrent_cancels_are_all_acknowledged",
        "test_a_task_is_cancelled_once",
    ],
    "a blocking tasks/result stops the whole connection": [
        "test_over_stdio_the_question_arrives_between_other_answers",
        "test_waiting_for_a_result_blocks_no_other_request",
        "test_many_requests_on_one_connection_can_wait_each_for_its_own_task",
    ],
    "cancel never reaches the work": [
        "test_a_coroutine_that_awaits_is_stopped_within_a_second",
        "test_a_thread_sees_that_it_is_cancelled_and_its_later_writes_are_refused",
        "test_cancelling_a_parent_cancels_its_children_and_theirs",
        "test_a_cancel_reaches_a_body_in_another_process",
        "test_a_running_task_is_cancelled_and_its_body_stops",
        "test_when_cancel_is_answered_the_task_is_cancelled_and_its_work_is_stopped",
    ],
    "a cancel seems to work although the task settled otherwise": [
        "test_a_coroutine_that_ignores_its_cancellation_is_cancelled_again",
        "test_a_coroutine_that_ignores_its_cancellation_keeps_only_its_slot",
        "test_the_cancel_of_an_ended_task_is_acknowledged_without_effect",
        "test_work_that_does_not_stop_changes_nothing",
    ],
    # Lost results and restarts
    "a task is not found after a restart": [
        "test_every_field_of_every_record_is_stored_after_reopening",
        "test_a_released_task_resumes_in_another_engine_at_once_and_has_no_failure",
        "test_when_the_answer_arrives_another_process_finds_the_task_in_the_file",
        "test_an_unverified_header_is_an_owner_that_survives_a_restart",
    ],
    "a task is not found because it was looked for by session": [
        "test_another_session_of_the_same_owner_polls_reads_answers_and_lists_the_task",
        "test_a_task_is_found_again_after_a_restart_in_a_new_session",
        "test_an_unverified_header_identifies_an_owner_in_every_session_and_after_a_restart",
        "test_tasks_of_local_callers_are_visible_on_every_connection_and_separate_from_the_networks",
        "test_when_the_pipe_of_a_process_is_closed_the_next_process_on_the_file_asks",
    ],
    "arguments expire before the run": ["test_a_task_that_was_queued_for_long_runs_with_its_arguments"],
    "the worker is dead but reports healthy after the database failed over": [
        "test_claiming_resumes_after_the_store_was_unavailable",
        "test_a_lease_that_could_not_be_extended_is_extended_before_anything_is_swept",
        "test_a_result_is_not_lost_if_the_store_is_unavailable",
    ],
    "the body uses a request scope that is gone": [
        "test_attempts_do_not_share_context_variables",
        "test_the_recorded_caller_reaches_every_attempt_and_every_child",
        "test_the_lifespan_state_reaches_the_bodies_of_tasks",
        "test_a_task_that_resumes_in_another_process_sees_who_called",
    ],
    "a strict client loses the id because of one odd field": [
        "test_the_answer_to_a_poll_fits_the_schema_in_every_phase",
        "test_a_poll_interval_is_a_positive_integer_that_is_exact_for_every_reader",
        "test_a_missing_status_message_is_omitted_and_not_null",
        "test_values_that_strict_clients_reject_are_rejected",
    ],
    "the content of a failed tool call is lost": [
        "test_an_error_for_the_caller_completes_the_task_with_its_content",
        "test_a_tools_own_error_is_a_result_of_a_completed_task",
        "test_a_tool_error_is_a_failure_in_2025_and_a_result_in_2026",
    ],
    # Time
    "seconds are taken for milliseconds": [
        "test_a_created_task_is_read_back_unchanged",
        "test_a_ttl_is_rounded_up_to_whole_milliseconds",
        "test_the_expiry_that_a_caller_computes_is_within_a_millisecond_of_the_stored_one",
    ],
    "an interval of 0, negative, NaN, infinite": [
        "test_invalid_engine_settings_are_rejected",
        "test_a_tool_with_invalid_settings_is_rejected",
        "test_an_invalid_sleep_is_rejected",
        "test_invalid_progress_is_dropped_with_one_warning_and_the_body_continues",
        "test_the_poll_interval_is_bounded",
        "test_every_status_comes_with_a_whole_number_of_milliseconds",
        "test_whatever_pace_the_caller_suggests_it_is_polled_within_bounds",
    ],
    "32-bit overflow near 25 days": ["test_a_month_survives_in_every_duration"],
    "eviction while still working": [
        "test_a_live_task_never_expires",
        "test_the_result_of_a_child_is_stored_while_its_parent_lives",
    ],
    "expiry that does not wake waiters": [
        "test_the_change_feed_reports_every_kind_of_change",
        "test_waiting_for_a_task_that_is_pruned_raises_not_found",
    ],
    "expiry checked in one read but not in another": [
        "test_an_expired_task_looks_exactly_like_an_unknown_one",
        "test_unknown_expired_and_other_owners_tasks_are_indistinguishable",
        "test_expiry_counts_for_every_method",
    ],
    "advertising less ttl than the task may run": [
        "test_the_ttl_is_never_shorter_than_the_task_may_run",
        "test_a_requested_ttl_is_granted_within_limits",
        "test_a_task_can_be_read_until_its_ttl_expires",
        "test_a_task_that_outlives_its_ttl_is_retained_and_reports_no_ttl",
    ],
    "the time of the last update is now at every poll": [
        "test_reading_changes_nothing",
        "test_updated_at_changes_only_with_a_change",
        "test_an_extended_lease_ends_later_and_nothing_else_changes",
        "test_polls_do_not_change_when_the_task_was_updated",
    ],
    "a clock that jumps": [
        "test_a_clock_that_jumps_back_does_not_move_the_tasks_times_back",
        "test_a_clock_that_jumps_ahead_expires_the_lease_but_not_the_task",
        "test_an_engine_does_not_sweep_its_own_live_attempts_after_a_long_sleep",
        "test_a_queued_task_is_claimed_although_the_clock_was_set_back",
    ],
    # Memory and resources
    "a store that grows without bound": [
        "test_pruning_deletes_everything_that_belongs_to_a_task",
        "test_the_log_keeps_only_the_newest_changes_and_reports_a_gap",
        "test_expired_tasks_are_pruned_by_default_and_waiters_get_not_found",
        "test_ten_thousand_reports_cost_few_writes_and_the_last_one_is_stored",
    ],
    "maps and queues that leak": [
        "test_a_stopped_engine_leaves_no_threads_or_asyncio_tasks",
        "test_the_number_of_tracked_polls_is_bounded",
        "test_a_closed_stream_is_not_counted_any_more",
        "test_a_connection_keeps_nothing_of_tasks_that_have_ended",
        "test_calls_and_results_over_and_over_leave_nothing_behind",
    ],
    "a busy loop when idle": [
        "test_an_idle_engine_writes_nothing_and_rarely_polls",
        "test_an_engine_whose_tasks_all_wait_does_not_spin",
    ],
    "a subscriber that stops reading": [
        "test_a_feed_with_too_many_changes_reports_any_task",
        "test_a_caller_that_stops_reading_does_not_block_others",
        "test_a_caller_that_stops_reading_blocks_no_other_caller",
    ],
    "a caller that disconnects while it waits": [
        "test_the_work_of_a_caller_that_disconnects_and_can_not_come_back_is_stopped",
        "test_the_hidden_task_of_a_caller_that_disconnects_is_cancelled",
        "test_a_caller_that_stops_listening_does_not_cancel_the_task",
    ],
    "a caller that disconnects during a blocking tasks/result": [
        "test_a_caller_that_waits_after_another_disconnected_is_asked_the_same_question",
        "test_a_caller_that_waits_concurrently_is_asked_when_the_other_disconnects",
        "test_when_a_connection_is_closed_the_next_is_asked",
        "test_a_caller_whose_connection_breaks_can_wait_on_another_and_holds_no_slot_meanwhile",
        "test_a_connection_that_closes_during_a_wait_leaves_no_resources_behind",
    ],
    "many servers on one file: lock errors, a log that never shrinks": [
        "test_eight_processes_share_a_file_and_one_of_them_is_killed",
        "test_the_log_is_moved_into_the_file_when_it_is_large_and_when_it_is_quiet",
    ],
    "orphans of dead processes": [
        "test_the_tasks_of_a_dead_process_resume_in_another_within_the_lease_time",
        "test_the_task_of_a_dead_worker_is_recovered_when_its_lease_has_expired",
    ],
    "a body blocks the event loop, the lease is lost, and the task runs twice": [
        "test_a_lease_is_extended_while_a_body_blocks_the_loop_and_a_warning_is_logged",
        "test_a_body_that_blocks_the_loop_for_longer_than_its_lease_is_not_run_twice",
        "test_a_thread_that_reports_constantly_does_not_block_other_tasks",
    ],
    "list cursors that drift under inserts": [
        "test_paging_shows_each_task_that_existed_throughout_exactly_once",
        "test_a_page_cursor_outlives_the_task_it_names",
        "test_a_task_that_exists_throughout_is_listed_exactly_once_despite_concurrent_changes",
    ],
    "list cursors that are ignored, or leak another owner's ids": [
        "test_a_page_has_a_hundred_tasks_and_a_cursor_for_the_next_page",
        "test_a_cursor_that_was_not_issued_is_rejected",
        "test_a_cursor_is_invalid_for_other_owners",
        "test_a_cursor_reveals_neither_its_owner_nor_the_secret",
    ],
    # Auth and secrets
    "the previous caller's identity stays in the worker's context variables": [
        "test_attempts_do_not_share_context_variables",
        "test_a_body_sees_nothing_of_the_previous_body_on_its_worker",
        "test_a_worker_started_by_a_connection_has_no_identity_of_its_caller",
        "test_concurrent_bodies_of_two_users_each_see_their_own_user",
        "test_each_body_sees_the_headers_of_its_own_call_in_a_shared_session",
        "test_a_body_that_resumes_after_an_answer_sees_the_caller_and_not_the_answerer",
    ],
    "exception text of a crash reaches the client unmasked": [
        "test_the_text_of_an_unexpected_error_is_only_for_the_operator",
        "test_a_crash_fails_the_task_with_an_internal_error_that_does_not_reveal_the_cause",
        "test_a_broken_store_is_an_internal_error_that_does_not_reveal_it",
    ],
    "no token is more permissive than a bad token": ["test_a_missing_token_is_refused_like_an_invalid_one"],
    "ids that can be enumerated": ["test_ids_have_128_random_bits"],
    "secrets in the store or the log in plain text": [
        "test_neither_a_token_nor_a_header_is_stored_or_logged",
        "test_the_token_that_was_verified_is_nowhere_in_the_file",
        "test_a_body_sees_who_called_and_never_their_token",
        "test_no_line_contains_the_whole_id_of_an_anonymous_task",
        "test_a_session_id_is_neither_stored_nor_logged",
    ],
    "another tenant's id can be told from an unknown one": [
        "test_another_owners_task_looks_exactly_like_an_unknown_one",
        "test_owners_can_neither_see_nor_touch_each_others_tasks",
        "test_a_body_can_not_read_tasks_that_are_not_its_children",
        "test_a_task_of_another_owner_looks_like_an_unknown_one",
        "test_a_request_for_another_owners_task_takes_the_same_path_as_an_unknown_id",
        "test_only_tasks_of_the_owner_are_acknowledged_and_all_others_look_alike",
        "test_the_request_state_of_a_round_is_useless_to_another_caller",
        "test_for_a_session_owner_another_owners_task_looks_exactly_like_an_unknown_one",
        "test_for_a_session_owner_a_request_for_another_owners_task_takes_the_same_path_as_for_an_unknown_one",
        "test_another_session_can_not_see_a_task_even_with_its_id",
    ],
    "owner names that contain the key separator": [
        "test_an_owners_name_may_have_any_characters",
        "test_names_with_separators_and_odd_characters_do_not_collide",
    ],
    "quotas that count, then write": [
        "test_racing_creates_do_not_exceed_the_live_quota",
        "test_racing_handles_do_not_exceed_the_live_quota",
        "test_of_calls_that_race_for_the_last_slot_one_gets_it",
        "test_calls_that_race_for_the_last_quota_slot_do_not_both_get_it",
    ],
    # Wire
    "an unasked task result to a host that did not declare tasks": [
        "test_a_call_without_the_extension_gets_its_result_whatever_other_calls_declared",
        "test_what_was_declared_with_one_request_does_not_count_for_the_next",
        "test_the_older_task_parameter_neither_makes_a_task_nor_changes_one",
        "test_a_version_without_tasks_gets_no_task_capability_and_no_task_methods",
    ],
    "the capability in the wrong place or shape": [
        "test_discovery_lists_the_extension_and_not_the_older_capability",
        "test_tools_are_listed_without_fields_of_2025_tasks",
        "test_tasks_list_is_declared_only_to_callers_that_can_be_told_apart",
    ],
    "a tool that does not say so is never called as a task": [
        "test_each_tool_declares_whether_it_may_be_called_as_a_task",
        "test_a_tool_that_does_not_declare_task_support_rejects_task_calls_and_does_nothing",
    ],
    "related-task metadata on an inlined result": [
        "test_a_result_inside_its_task_does_not_name_the_task_again",
        "test_the_result_in_a_task_does_not_name_the_task",
    ],
    "related-task metadata missing where it is due": [
        "test_a_result_names_its_task_beside_the_tools_own_metadata",
        "test_the_result_of_a_cancelled_task_is_an_error_that_names_it",
        "test_a_waiting_caller_is_asked_on_its_request_with_the_task_named_and_gets_the_result",
        "test_both_generations_under_load_get_their_own_format_and_all_tasks_end",
    ],
    "the stale code of a missing capability": [
        "test_a_caller_that_did_not_declare_the_extension_gets_its_name",
        "test_the_methods_of_tasks_are_refused_to_a_caller_that_does_not_declare_the_extension",
    ],
    "an internal error for an unknown id": [
        "test_an_unknown_id_gets_the_same_error_from_every_method",
        "test_unknown_expired_and_foreign_tasks_look_the_same",
    ],
    "canceled for cancelled": [
        "test_cancelled_is_spelled_with_two_ls_and_has_its_reason",
        "test_a_cancelled_task_is_spelled_with_two_ls",
    ],
    "answered inputs that still show after a partial update": [
        "test_answered_questions_do_not_show",
        "test_after_some_of_the_answers_only_the_other_questions_are_open",
        "test_an_answer_of_a_2025_caller_is_not_visible_to_a_2026_caller",
    ],
    "an input key that is used again": [
        "test_a_key_is_never_used_again",
        "test_every_question_of_a_task_has_a_unique_key",
    ],
    "progress after the end, or for another task's token": [
        "test_neither_progress_nor_log_messages_are_sent_for_a_task",
        "test_a_caller_that_waits_for_a_hidden_task_gets_its_progress",
        "test_progress_is_sent_after_the_call_was_answered_until_the_task_ends",
        "test_progress_reported_just_before_the_end_is_not_sent_after_the_end",
        "test_the_progress_of_each_task_is_sent_with_its_own_token",
    ],
    "a progress token that is neither text nor number": [
        "test_a_progress_token_of_a_wrong_type_is_refused_and_no_task_made",
        "test_progress_is_sent_with_the_token_of_the_call",
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
