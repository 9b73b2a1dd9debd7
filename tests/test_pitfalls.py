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
        "test_a_completion_just_before_the_cancel_wins_and_the_cancel_is_told",
    ],
    "a heartbeat, progress or status write lands after the end": [
        "test_nothing_leads_out_of_an_end",
        "test_a_holder_who_lost_the_task_learns_it_when_it_extends",
        "test_a_report_after_the_end_is_refused_and_changes_nothing",
        "test_a_thread_that_a_plain_body_left_behind_can_write_nothing",
        "test_a_branch_that_a_coroutine_left_behind_is_stopped_at_its_next_call",
    ],
    "the status message of the working phase survives completion": [
        "test_the_message_of_the_working_phase_does_not_survive_completion",
        "test_the_message_of_the_work_is_gone_when_the_work_is_done",
    ],
    "result and status are written in two steps, and a reader sees one without the other": [
        "test_outcome_and_phase_become_visible_at_one_moment",
        "test_a_crash_anywhere_leaves_all_or_nothing",
        "test_a_result_whose_receipt_was_lost_is_written_once",
    ],
    "redelivery and retry together run one attempt twice": [
        "test_racing_claims_never_get_the_same_task",
        "test_a_process_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing_recorded",
    ],
    "a claim without a fence lets the old holder finish": [
        "test_a_stale_worker_cannot_write_to_a_reclaimed_task",
        "test_the_machine_finds_a_planted_bug_in_all_runs_but_one",
        "test_a_body_whose_lease_was_taken_away_is_stopped_and_the_next_attempt_goes_on",
    ],
    "a reaper that measures from creation kills a task that was just redriven": [
        "test_an_old_task_that_just_began_again_is_left_alone"
    ],
    "an orphan is marked dead, but no final event wakes the waiters": [
        "test_a_listener_hears_of_every_kind_of_change",
        "test_a_task_that_must_not_run_twice_fails_when_it_is_cut_off",
        "test_a_parked_task_ends_at_its_deadline",
    ],
    "running out of memory leads to endless retry": [
        "test_a_task_that_kills_its_worker_each_time_fails_after_its_attempts",
        "test_a_task_that_kills_its_process_each_time_fails_after_its_attempts",
    ],
    "the user is asked twice": [
        "test_a_key_is_never_used_again",
        "test_of_racing_answers_to_one_question_one_counts",
        "test_a_slow_answer_finds_the_task_parked_and_is_not_asked_for_again",
        "test_a_question_that_is_put_again_after_a_crash_of_the_body_is_the_same_one",
    ],
    "a repeated tasks/result while input is required asks twice": [
        "test_of_two_that_wait_on_one_connection_one_is_asked_and_both_get_the_result",
        "test_of_two_connections_of_one_owner_one_is_asked_and_both_get_the_result",
        "test_a_request_for_the_result_that_is_repeated_again_and_again_asks_once",
        "test_of_many_questions_each_is_asked_of_one",
        "test_a_refusal_outlives_a_server_that_is_killed",
    ],
    "a retry leads out of a terminal state": ["test_nothing_leads_out_of_an_end"],
    "a second cancel breaks something": [
        "test_of_many_endings_at_once_exactly_one_wins",
        "test_a_second_cancel_says_that_it_is_over_and_changes_nothing",
        "test_of_many_cancellations_at_once_all_are_acknowledged",
        "test_a_task_is_cancelled_once",
    ],
    "a blocking tasks/result stops the whole connection": [
        "test_on_the_streams_of_a_process_the_question_comes_between_other_answers",
        "test_a_result_is_waited_for_and_holds_up_nothing_else",
        "test_many_may_wait_on_one_connection_each_for_a_task_of_its_own",
    ],
    "cancel never reaches the work": [
        "test_a_coroutine_that_awaits_is_stopped_within_a_second",
        "test_a_thread_sees_that_it_is_cancelled_and_its_later_writes_are_refused",
        "test_cancelling_a_parent_cancels_its_children_and_theirs",
        "test_a_cancel_reaches_a_body_in_another_process",
        "test_a_running_task_is_cancelled_and_its_body_stops",
        "test_a_task_is_cancelled_when_the_answer_comes_and_its_work_is_stopped",
    ],
    "a cancel seems to work although the task settled otherwise": [
        "test_a_coroutine_that_swallows_its_cancellation_is_told_again",
        "test_a_coroutine_that_ignores_its_cancellation_keeps_its_place_and_nothing_more",
        "test_a_task_that_has_ended_stays_as_it_is_and_its_cancellation_is_acknowledged",
        "test_work_that_does_not_stop_changes_nothing",
    ],
    # Lost results and restarts
    "a task is not found after a restart": [
        "test_what_was_committed_is_there_after_reopening",
        "test_what_an_engine_hands_back_goes_on_in_another_at_once_and_counts_as_no_failure",
        "test_when_the_answer_arrives_another_process_finds_the_task_in_the_file",
        "test_a_header_that_nobody_verifies_is_an_owner_that_outlives_a_restart",
    ],
    "a task is not found because it was looked for by session": [
        "test_another_session_of_the_same_owner_finds_reads_answers_and_lists_the_task",
        "test_a_task_is_found_again_after_a_restart_in_a_new_session",
        "test_a_header_that_nobody_verifies_is_an_owner_in_every_session_and_after_a_restart",
        "test_tasks_of_this_machine_are_found_on_every_connection_and_kept_apart_from_the_networks",
        "test_when_the_pipe_of_a_process_is_closed_the_next_process_on_the_file_asks",
    ],
    "arguments expire before the run": ["test_a_task_that_was_queued_for_long_runs_with_its_arguments"],
    "the worker is dead but reports healthy after the database failed over": [
        "test_a_store_that_is_out_of_reach_for_a_while_does_not_end_the_claiming",
        "test_a_lease_that_could_not_be_extended_is_extended_before_anything_is_swept",
        "test_a_result_is_not_lost_when_the_store_is_away_just_then",
    ],
    "the body uses a request scope that is gone": [
        "test_one_attempt_does_not_see_what_another_put_into_context_variables",
        "test_what_the_server_wrote_down_of_the_call_reaches_every_attempt_and_every_child",
        "test_what_the_servers_lifespan_made_reaches_the_bodies_of_tasks",
        "test_a_task_that_goes_on_in_another_process_sees_who_called",
    ],
    "a strict client loses the id because of one odd field": [
        "test_the_answer_to_a_poll_is_what_the_schema_allows_in_every_phase",
        "test_a_poll_interval_is_a_positive_integer_that_every_reader_can_hold",
        "test_a_status_without_words_has_no_message_rather_than_null",
        "test_what_strict_clients_refuse_is_refused_here",
    ],
    "the content of a failed tool call is lost": [
        "test_an_error_for_the_caller_completes_the_task_and_its_content_is_kept",
        "test_a_tools_own_error_is_a_result_of_a_completed_task",
        "test_a_tools_own_error_is_a_failure_to_one_and_a_result_to_the_other",
    ],
    # Time
    "seconds are taken for milliseconds": [
        "test_a_created_task_reads_back_exactly_as_it_was_made",
        "test_a_ttl_is_told_in_whole_milliseconds_and_never_less_than_promised",
        "test_the_end_that_a_caller_computes_is_within_a_millisecond_of_what_is_kept",
    ],
    "an interval of 0, negative, NaN, infinite": [
        "test_an_engine_that_can_not_work_is_refused_where_it_is_set",
        "test_a_tool_that_can_not_work_is_refused_where_it_is_made",
        "test_a_sleep_that_can_not_be_is_refused",
        "test_progress_that_is_no_number_is_left_out_with_one_warning_and_the_work_goes_on",
        "test_the_pace_has_bounds",
        "test_every_status_comes_with_a_whole_number_of_milliseconds",
        "test_whatever_pace_the_caller_suggests_it_is_polled_within_bounds",
    ],
    "32-bit overflow near 25 days": ["test_a_month_survives_in_every_duration"],
    "eviction while still working": [
        "test_a_live_task_never_expires",
        "test_what_a_child_left_is_kept_for_as_long_as_its_parent_lives",
    ],
    "expiry that does not wake waiters": [
        "test_a_listener_hears_of_every_kind_of_change",
        "test_whoever_waits_for_a_task_that_is_forgotten_is_woken_and_told",
    ],
    "expiry checked in one read but not in another": [
        "test_an_expired_task_looks_exactly_like_an_unknown_one",
        "test_unknown_expired_and_somebody_elses_tasks_can_not_be_told_apart",
        "test_expiry_counts_for_every_method",
    ],
    "advertising less ttl than the task may run": [
        "test_the_ttl_never_says_less_than_the_task_may_run",
        "test_a_caller_who_asks_for_a_ttl_gets_it_within_bounds",
        "test_a_task_can_be_read_for_as_long_as_its_ttl_said_and_no_longer",
        "test_a_task_that_works_longer_than_was_asked_for_is_kept_and_says_so",
    ],
    "the time of the last update is now at every poll": [
        "test_reading_changes_nothing",
        "test_nothing_touches_the_time_of_the_last_change_but_a_change",
        "test_an_extended_lease_ends_later_and_nothing_else_changes",
        "test_polls_do_not_change_when_the_task_was_updated",
    ],
    "a clock that jumps": [
        "test_a_clock_that_jumps_back_does_not_take_the_task_with_it",
        "test_a_clock_that_jumps_ahead_costs_a_lease_and_not_the_task",
        "test_an_engine_does_not_take_its_own_live_attempts_for_dead_after_a_long_sleep",
        "test_a_queued_task_is_taken_although_the_clock_was_set_back",
    ],
    # Memory and resources
    "a store that grows without bound": [
        "test_pruning_forgets_everything_that_belongs_to_a_task",
        "test_the_log_keeps_only_the_newest_and_says_so_to_who_is_too_far_behind",
        "test_what_has_expired_is_forgotten_by_default_and_whoever_waits_is_told",
        "test_ten_thousand_reports_cost_few_writes_and_the_last_one_is_kept",
    ],
    "maps and queues that leak": [
        "test_nothing_of_an_engine_is_left_when_it_has_stopped",
        "test_what_is_remembered_has_bounds",
        "test_a_stream_that_was_left_is_not_counted_any_more",
        "test_a_connection_keeps_nothing_of_tasks_that_have_ended",
        "test_calls_and_results_over_and_over_leave_nothing_behind",
    ],
    "a busy loop when idle": [
        "test_an_idle_engine_writes_nothing_and_hardly_looks",
        "test_an_engine_whose_tasks_all_wait_does_not_spin",
    ],
    "a subscriber that stops reading": [
        "test_a_slow_listener_is_told_of_more_than_it_can_name",
        "test_a_caller_that_stops_reading_holds_up_nobody",
        "test_a_caller_that_stops_reading_holds_up_nobody_else",
    ],
    "a caller that disconnects while it waits": [
        "test_the_work_for_a_caller_that_leaves_and_has_no_way_back_is_stopped",
        "test_the_hidden_task_of_a_caller_that_leaves_is_cancelled",
        "test_a_caller_that_stops_listening_does_not_cancel_the_task",
    ],
    "a caller that disconnects during a blocking tasks/result": [
        "test_one_that_comes_after_another_has_left_is_asked_what_that_one_was",
        "test_one_that_waited_alongside_is_asked_when_the_other_leaves",
        "test_when_a_connection_is_closed_the_next_is_asked",
        "test_a_caller_whose_connection_breaks_may_come_back_on_another_and_holds_no_place_meanwhile",
        "test_a_connection_that_closes_while_somebody_waits_on_it_leaves_nothing_behind",
    ],
    "many servers on one file: lock errors, a log that never shrinks": [
        "test_eight_processes_share_a_file_and_one_of_them_is_killed",
        "test_the_log_is_moved_into_the_file_when_it_is_large_and_when_it_is_quiet",
    ],
    "orphans of dead processes": [
        "test_what_a_dead_process_held_goes_on_in_another_within_the_lease_time",
        "test_what_a_dead_worker_held_is_taken_back_when_its_lease_has_run_out",
    ],
    "a body blocks the event loop, the lease is lost, and the task runs twice": [
        "test_a_lease_is_extended_while_a_body_blocks_the_loop_and_somebody_is_told",
        "test_a_body_that_blocks_the_loop_for_longer_than_its_lease_is_not_run_twice",
        "test_a_thread_that_reports_all_the_time_does_not_keep_others_from_running",
    ],
    "list cursors that drift under inserts": [
        "test_paging_shows_each_task_that_existed_throughout_exactly_once",
        "test_a_place_in_the_list_outlives_the_task_it_names",
        "test_whoever_was_there_all_the_time_is_shown_once_whatever_comes_and_ends_meanwhile",
    ],
    "list cursors that are ignored, or leak another owner's ids": [
        "test_a_page_has_a_hundred_and_says_where_the_next_one_begins",
        "test_a_cursor_that_was_not_given_is_refused_whatever_it_is",
        "test_a_cursor_is_of_use_to_nobody_else",
        "test_a_cursor_tells_nobody_whose_it_is_and_has_no_secret_in_it",
    ],
    # Auth and secrets
    "the previous caller's identity stays in the worker's context variables": [
        "test_one_attempt_does_not_see_what_another_put_into_context_variables",
        "test_nothing_of_one_body_is_left_for_the_next_on_the_same_worker",
        "test_a_worker_that_a_callers_connection_started_has_nothing_of_that_caller",
        "test_bodies_of_two_users_that_run_side_by_side_see_each_their_own",
        "test_each_body_sees_what_its_own_call_was_made_with_though_one_session_made_them_all",
        "test_a_body_that_goes_on_after_an_answer_sees_who_called_and_not_who_answered",
    ],
    "exception text of a crash reaches the client unmasked": [
        "test_the_text_of_an_unforeseen_error_is_for_the_operator_alone",
        "test_a_crash_fails_the_task_with_an_internal_error_that_says_nothing_of_the_cause",
        "test_a_store_that_is_broken_is_an_internal_error_that_says_nothing_of_it",
    ],
    "no token is more permissive than a bad token": ["test_no_token_gets_no_further_than_a_bad_one"],
    "ids that can be enumerated": ["test_ids_have_128_bits_of_chance_in_them"],
    "secrets in the store or the log in plain text": [
        "test_neither_a_token_nor_a_header_is_kept_or_logged",
        "test_what_a_verifier_was_shown_is_nowhere_in_the_file",
        "test_a_body_sees_who_called_and_never_their_token",
        "test_the_id_of_an_anonymous_task_which_is_the_right_to_it_is_in_no_line",
        "test_the_id_of_a_session_is_neither_kept_nor_logged",
    ],
    "another tenant's id can be told from an unknown one": [
        "test_another_owners_task_looks_exactly_like_an_unknown_one",
        "test_owners_can_neither_see_nor_touch_each_others_tasks",
        "test_a_body_learns_nothing_of_tasks_that_are_not_its_children",
        "test_a_stranger_cannot_tell_anothers_task_from_an_unknown_one",
        "test_a_strangers_request_takes_the_same_way_as_one_for_an_unknown_task",
        "test_only_ones_own_tasks_are_agreed_on_and_the_others_look_alike",
        "test_the_state_of_a_round_is_of_no_use_to_another_caller",
        "test_in_a_session_of_ones_own_anothers_task_looks_exactly_like_an_unknown_one",
        "test_in_a_session_of_ones_own_a_request_for_anothers_task_takes_the_same_way_as_for_an_unknown_one",
        "test_from_another_session_it_is_as_if_it_never_was_though_its_id_is_known",
    ],
    "owner names that contain the key separator": [
        "test_an_owners_name_may_have_any_characters",
        "test_names_with_separators_and_odd_characters_do_not_collide",
    ],
    "quotas that count, then write": [
        "test_racing_creates_cannot_both_take_the_last_place",
        "test_handles_that_race_for_the_last_place_in_a_quota_do_not_both_get_it",
        "test_of_calls_that_race_for_the_last_place_one_gets_it",
        "test_calls_that_race_for_the_last_place_do_not_both_get_it",
    ],
    # Wire
    "an unasked task result to a host that did not declare tasks": [
        "test_a_call_that_does_not_declare_the_extension_gets_its_result_whatever_others_declared",
        "test_what_was_declared_with_one_request_does_not_count_for_the_next",
        "test_the_older_task_parameter_neither_makes_a_task_nor_changes_one",
        "test_a_version_without_tasks_is_told_of_none_and_has_none",
    ],
    "the capability in the wrong place or shape": [
        "test_discovery_lists_the_extension_and_not_the_older_capability",
        "test_tools_are_listed_without_what_the_older_tasks_say_of_them",
        "test_tasks_are_declared_and_lists_of_them_only_to_callers_that_can_be_told_apart",
    ],
    "a tool that does not say so is never called as a task": [
        "test_each_tool_says_whether_it_may_be_called_as_a_task",
        "test_a_tool_that_does_not_say_that_it_takes_tasks_refuses_them_and_does_nothing",
    ],
    "related-task metadata on an inlined result": [
        "test_a_result_inside_its_task_does_not_say_again_which_task_that_is",
        "test_the_result_in_a_task_never_says_which_task_it_is_of",
    ],
    "related-task metadata missing where it is due": [
        "test_a_result_says_whose_it_is_beside_what_the_tool_says",
        "test_the_result_of_a_cancelled_task_is_an_error_that_names_it",
        "test_who_waits_is_asked_where_it_waits_which_task_asks_and_gets_the_result",
        "test_both_at_once_under_load_are_answered_each_in_its_own_words_and_all_tasks_end_right",
    ],
    "the stale code of a missing capability": [
        "test_a_caller_that_did_not_declare_the_extension_is_told_which",
        "test_the_methods_of_tasks_are_refused_to_a_caller_that_does_not_declare_the_extension",
    ],
    "an internal error for an unknown id": [
        "test_an_unknown_id_is_told_alike_by_every_method",
        "test_unknown_expired_and_foreign_tasks_look_the_same",
    ],
    "canceled for cancelled": [
        "test_cancelled_is_spelled_with_two_ls_and_says_why",
        "test_a_cancelled_task_is_spelled_with_two_ls",
    ],
    "answered inputs that still show after a partial update": [
        "test_answered_questions_do_not_show",
        "test_after_some_of_the_answers_only_the_other_questions_are_open",
        "test_what_a_caller_of_2025_answered_does_not_show_to_one_of_2026",
    ],
    "an input key that is used again": [
        "test_a_key_is_never_used_again",
        "test_every_question_of_a_task_has_a_key_of_its_own_for_its_whole_life",
    ],
    "progress after the end, or for another task's token": [
        "test_neither_progress_nor_log_messages_are_sent_for_a_task",
        "test_who_waits_for_a_task_without_seeing_it_hears_how_far_it_is",
        "test_progress_goes_on_long_after_the_call_was_answered_and_ends_with_the_task",
        "test_progress_that_was_reported_with_the_last_breath_is_not_told_after_the_end",
        "test_each_task_is_told_of_under_its_own_token",
    ],
    "a progress token that is neither text nor number": [
        "test_a_progress_token_of_a_wrong_type_is_refused_and_no_task_made",
        "test_progress_is_told_under_the_token_of_the_call_as_it_was_given",
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
