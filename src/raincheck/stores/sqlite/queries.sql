-- name: insert_task
-- Insert a new task's record.
INSERT INTO tasks (
    id, namespace, owner, tool, tool_version, created_at, parent_id, idempotency_key, request_digest, priority, deadline_at,
    retry, keep, ttl, updated_at, phase, due_at, version, fence, failures, attempt_started_at, lease_holder,
    lease_expires_at, pausing, signals, open_inputs, entries, progress_done, progress_total, status_message, is_error,
    finished_at, expires_at, turn, state, state_since, state_number, subject
) VALUES (
    :id, :namespace, :owner, :tool, :tool_version, :created_at, :parent_id, :idempotency_key, :request_digest, :priority,
    :deadline_at, :retry, :keep, :ttl, :updated_at, :phase, :due_at, :version, :fence, :failures, :attempt_started_at,
    :lease_holder, :lease_expires_at, :pausing, :signals, :open_inputs, :entries, :progress_done, :progress_total,
    :status_message, :is_error, :finished_at, :expires_at, :turn, :state, :state_since, :state_number,
    :subject
);

-- name: update_task
-- Change the record, if it is still the one that was read. The stored lease of an attempt that continues is not overwritten: it may
-- have been extended since.
UPDATE tasks SET
    updated_at = :updated_at, phase = :phase, due_at = :due_at, version = :version, fence = :fence, failures = :failures,
    attempt_started_at = :attempt_started_at, lease_holder = :lease_holder,
    lease_expires_at = CASE
        WHEN phase = 'running' AND :phase = 'running' THEN lease_expires_at ELSE :lease_expires_at
    END,
    pausing = :pausing, signals = :signals, open_inputs = :open_inputs, entries = :entries,
    progress_done = :progress_done, progress_total = :progress_total, status_message = :status_message,
    is_error = :is_error, finished_at = :finished_at, expires_at = :expires_at,
    turn = coalesce(:turn, turn), state = :state, state_since = :state_since, state_number = :state_number
WHERE id = :id AND version = :expected_version AND (:lease_seen IS NULL OR lease_expires_at = :lease_seen)
RETURNING pk;

-- name: next_turn
-- The turn of a task that enters the queue, and whether any task waits in its queue (a namespace and a priority). The turn comes
-- after the last one of the same owner and kind, and after the turn that has been served for the tool. That is the served turn of the
-- queue or, if tasks of the tool still wait from earlier turns, the first of these.
SELECT 1 + max(
    coalesce((
        SELECT turn FROM tasks
        WHERE namespace = :namespace AND owner = :owner AND priority = :priority AND (fence > 0) = (:fence > 0)
            AND phase = 'queued'
        ORDER BY turn DESC LIMIT 1
    ), 0),
    coalesce((
        SELECT turn FROM tasks
        WHERE namespace = :namespace AND priority = :priority AND phase = 'queued' AND turn < line.served
            AND tool = :tool AND tool_version = :tool_version
        ORDER BY turn LIMIT 1
    ), line.served)
), EXISTS (SELECT 1 FROM tasks WHERE namespace = :namespace AND priority = :priority AND phase = 'queued')
FROM (
    SELECT coalesce((SELECT served FROM lines WHERE namespace = :namespace AND priority = :priority), 0) AS served
) AS line;

-- name: advance_served_turns
-- Store how far a claim served its queues, after it claimed these tasks (a JSON array of ids).
INSERT INTO lines (namespace, priority, served)
SELECT namespace, priority, max(turn) FROM tasks
WHERE id IN (SELECT value FROM json_each(?))
GROUP BY namespace, priority
ON CONFLICT (namespace, priority) DO UPDATE SET served = max(served, excluded.served);

-- name: find_task
-- A task by its id, without a scope.
SELECT * FROM tasks WHERE id = ?;

-- name: live_children
-- The children of a task that have not ended.
SELECT * FROM tasks WHERE parent_id = ? AND finished_at IS NULL;

-- name: put_payload
-- Store a payload of a task. Only variables are ever replaced.
INSERT INTO payloads (task_pk, kind, body) VALUES (?, ?, ?)
ON CONFLICT (task_pk, kind) DO UPDATE SET body = excluded.body;

-- name: insert_entry
-- Insert the history entry of a change.
INSERT INTO history (task_pk, seq, at, event, before, after, attempt, actor, note, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_step
-- Insert a finished checkpoint. An existing one violates the unique constraint.
INSERT INTO steps (task_pk, name, occurrence, fingerprint, result, attempt, finished_at) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: delete_steps
-- Delete the checkpoints of an instance in the state that it leaves.
DELETE FROM steps WHERE task_pk = :pk;

-- name: delete_answered_inputs
-- Delete the answered input requests of an instance in the state that it leaves.
DELETE FROM inputs WHERE task_pk = :pk AND answered_at IS NOT NULL;

-- name: insert_input
-- Insert a new input request. A key that was used before violates the unique constraint.
INSERT INTO inputs (task_pk, key, kind, request, asked_at, attempt) VALUES (?, ?, ?, ?, ?, ?);

-- name: answer_input
-- Store the answer to an input request.
UPDATE inputs SET answer = ?, answered_at = ? WHERE task_pk = ? AND key = ?;

-- name: put_artifact
-- Store an artifact, replacing one of the same name.
INSERT INTO artifacts (task_pk, name, content, kept_at) VALUES (?, ?, ?, ?)
ON CONFLICT (task_pk, name) DO UPDATE SET content = excluded.content, kept_at = excluded.kept_at;

-- name: log_change
-- Notify other processes on this file that a task changed.
INSERT INTO changes (task_id, origin) VALUES (?, ?);

-- name: trim_changes
-- Delete all but the newest changes.
DELETE FROM changes WHERE seq <= ?;

-- name: changes_since
-- The changes by other handles after a position in the log.
SELECT seq, task_id FROM changes WHERE seq > :seen AND origin <> :origin ORDER BY seq;

-- name: changes_bounds
-- The oldest and the newest position in the log. Two subqueries, since one query for both would scan the whole table.
SELECT coalesce((SELECT min(seq) FROM changes), 0), coalesce((SELECT max(seq) FROM changes), 0);

-- name: task_with_key
-- The owner's task with this idempotency key.
SELECT * FROM tasks WHERE namespace = :namespace AND owner = :owner AND idempotency_key = :key;

-- name: release_key
-- Free a task's idempotency key, if the task has this key. Nothing else in the record changes, so its version stays.
UPDATE tasks SET idempotency_key = NULL, request_digest = NULL WHERE id = :id AND idempotency_key = :key;

-- name: delete_task
-- Delete one task, with everything that belongs to it.
DELETE FROM tasks WHERE id = :id;

-- name: live_of_owner
-- The number of an owner's live tasks, counted no further than a limit.
SELECT count(*) FROM (
    SELECT 1 FROM tasks WHERE namespace = :namespace AND owner = :owner AND finished_at IS NULL LIMIT :most_live
);

-- name: nth_latest_of_owner
-- The creation time of an owner's n-th latest task, if it is after a given time.
SELECT created_at FROM tasks
WHERE namespace = :namespace AND owner = :owner AND created_at > :since
ORDER BY created_at DESC LIMIT 1 OFFSET :most_created - 1;

-- name: due_tasks
-- Parked tasks of the requested tools that are due, the first to be due first.
SELECT * FROM tasks
WHERE namespace = :namespace AND phase = 'parked' AND due_at <= :now
    AND (tool, tool_version) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:tools))
ORDER BY due_at, id LIMIT :due_limit;

-- name: queued_tasks
-- The next tasks of the requested tools, each with its payloads, and whether it has steps, input requests or artifacts.
SELECT
    tasks.*,
    (SELECT body FROM payloads WHERE task_pk = tasks.pk AND kind = 'arguments'),
    (SELECT body FROM payloads WHERE task_pk = tasks.pk AND kind = 'caller'),
    (SELECT body FROM payloads WHERE task_pk = tasks.pk AND kind = 'variables'),
    EXISTS (SELECT 1 FROM steps WHERE task_pk = tasks.pk)
        OR EXISTS (SELECT 1 FROM inputs WHERE task_pk = tasks.pk)
        OR EXISTS (SELECT 1 FROM artifacts WHERE task_pk = tasks.pk)
FROM tasks
WHERE namespace = :namespace AND phase = 'queued'
    AND (tool, tool_version) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:tools))
ORDER BY priority DESC, turn, created_at, id LIMIT :limit;

-- name: next_due
-- Whether a task of the requested tools is queued, and when the first parked one is due.
SELECT
    EXISTS (
        SELECT 1 FROM tasks
        WHERE namespace = :namespace AND phase = 'queued'
            AND (tool, tool_version) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:tools))
    ),
    (
        SELECT due_at FROM tasks
        WHERE namespace = :namespace AND phase = 'parked' AND due_at IS NOT NULL
            AND (tool, tool_version) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:tools))
        ORDER BY due_at, id LIMIT 1
    );

-- name: extend_lease
-- Extend a lease, if the attempt still holds the task.
UPDATE tasks SET lease_expires_at = :until WHERE id = :id AND fence = :fence AND phase = 'running' RETURNING pk;

-- name: put_latest_time
-- Note that this time has passed.
INSERT INTO clock (pk, latest) VALUES (1, :now) ON CONFLICT (pk) DO UPDATE SET latest = max(latest, excluded.latest);

-- name: latest_time
-- A time that has passed: when a lease was last extended, a running task changed, or a task was created.
SELECT max(
    coalesce((SELECT latest FROM clock WHERE pk = 1), 0),
    coalesce((SELECT max(updated_at) FROM tasks WHERE lease_expires_at IS NOT NULL), 0),
    coalesce((SELECT max(created_at) FROM tasks), 0)
);

-- name: tasks_past_lease
-- Running tasks whose lease has expired.
SELECT * FROM tasks WHERE lease_expires_at <= :now ORDER BY lease_expires_at LIMIT :limit;

-- name: tasks_past_deadline
-- Live tasks whose deadline has passed.
SELECT * FROM tasks WHERE deadline_at <= :now AND finished_at IS NULL ORDER BY deadline_at LIMIT :limit;

-- name: prune_tasks
-- Delete tasks that have expired, with everything that belongs to them. A live parent may still have to read its child.
DELETE FROM tasks WHERE pk IN (
    SELECT pk FROM tasks
    WHERE expires_at <= :now
        AND NOT EXISTS (SELECT 1 FROM tasks AS parent WHERE parent.id = tasks.parent_id AND parent.finished_at IS NULL)
    ORDER BY expires_at LIMIT :limit
)
RETURNING id;

-- name: prune_task
-- Delete one task that has ended, expired or not, with everything that belongs to it; unless its parent is live, as above.
DELETE FROM tasks
WHERE id = ? AND finished_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM tasks AS parent WHERE parent.id = tasks.parent_id AND parent.finished_at IS NULL)
RETURNING id;

-- name: load_task
-- One task, if the reader may see it.
SELECT * FROM tasks
WHERE id = :id AND (expires_at IS NULL OR expires_at > :now)
    AND (:namespace IS NULL OR namespace = :namespace) AND (:owner IS NULL OR owner = :owner);

-- name: view
-- The same with the task's outcome, if it has one. A single statement, so that it sees one moment without a transaction.
SELECT tasks.*, (SELECT body FROM payloads WHERE task_pk = tasks.pk AND kind = 'outcome') FROM tasks
WHERE id = :id AND (expires_at IS NULL OR expires_at > :now)
    AND (:namespace IS NULL OR namespace = :namespace) AND (:owner IS NULL OR owner = :owner);

-- name: journal
-- The same with the task's payloads, and whether it has steps, input requests or artifacts.
SELECT
    tasks.*,
    (SELECT body FROM payloads WHERE task_pk = tasks.pk AND kind = 'arguments'),
    (SELECT body FROM payloads WHERE task_pk = tasks.pk AND kind = 'caller'),
    (SELECT body FROM payloads WHERE task_pk = tasks.pk AND kind = 'variables'),
    EXISTS (SELECT 1 FROM steps WHERE task_pk = tasks.pk)
        OR EXISTS (SELECT 1 FROM inputs WHERE task_pk = tasks.pk)
        OR EXISTS (SELECT 1 FROM artifacts WHERE task_pk = tasks.pk)
FROM tasks
WHERE id = :id AND (expires_at IS NULL OR expires_at > :now)
    AND (:namespace IS NULL OR namespace = :namespace) AND (:owner IS NULL OR owner = :owner);

-- name: open_inputs
-- The open input requests of a task.
SELECT key, kind, request, asked_at, attempt, answer, answered_at FROM inputs
WHERE task_pk = :pk AND answered_at IS NULL ORDER BY pk;

-- name: all_inputs
-- All input requests of a task.
SELECT key, kind, request, asked_at, attempt, answer, answered_at FROM inputs WHERE task_pk = :pk ORDER BY pk;

-- name: all_steps
-- All checkpoints of a task.
SELECT name, occurrence, fingerprint, result, attempt, finished_at FROM steps WHERE task_pk = :pk ORDER BY pk;

-- name: artifact_names
-- The names of a task's artifacts.
SELECT name FROM artifacts WHERE task_pk = :pk ORDER BY name;

-- name: artifact
-- One artifact of a task.
SELECT name, content, kept_at FROM artifacts WHERE task_pk = :pk AND name = :name;

-- name: history
-- A task's history after an entry.
SELECT seq, at, event, before, after, attempt, actor, note, detail FROM history
WHERE task_pk = :pk AND seq > :after ORDER BY seq LIMIT :limit;

-- name: list_of_owner
-- One owner's tasks, newest first.
SELECT * FROM tasks
WHERE namespace = :namespace AND owner = :owner AND (created_at, id) < (:created_at, :id)
    AND (expires_at IS NULL OR expires_at > :now)
    AND (:tool IS NULL OR tool = :tool) AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: list_of_namespace
-- Every owner's tasks in one namespace, newest first.
SELECT * FROM tasks
WHERE namespace = :namespace AND (created_at, id) < (:created_at, :id) AND (expires_at IS NULL OR expires_at > :now)
    AND (:tool IS NULL OR tool = :tool) AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: list_all
-- All tasks, or one owner's in all namespaces, newest first.
SELECT * FROM tasks
WHERE (created_at, id) < (:created_at, :id) AND (expires_at IS NULL OR expires_at > :now)
    AND (:owner IS NULL OR owner = :owner)
    AND (:tool IS NULL OR tool = :tool) AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: list_of_parent
-- One task's children, newest first.
SELECT * FROM tasks
WHERE parent_id = :parent_id AND (created_at, id) < (:created_at, :id) AND (expires_at IS NULL OR expires_at > :now)
    AND (:namespace IS NULL OR namespace = :namespace) AND (:owner IS NULL OR owner = :owner)
    AND (:tool IS NULL OR tool = :tool) AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: list_of_state
-- Instances of one workflow that are in a state, newest first.
SELECT * FROM tasks
WHERE namespace = :namespace AND tool = :tool AND state = :state AND (created_at, id) < (:created_at, :id)
    AND (expires_at IS NULL OR expires_at > :now) AND (:owner IS NULL OR owner = :owner)
    AND (:subject IS NULL OR subject = :subject)
    AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: list_of_subject
-- Instances with a subject, newest first.
SELECT * FROM tasks
WHERE namespace = :namespace AND subject = :subject AND (created_at, id) < (:created_at, :id)
    AND (expires_at IS NULL OR expires_at > :now) AND (:owner IS NULL OR owner = :owner)
    AND (:tool IS NULL OR tool = :tool) AND (:phases IS NULL OR phase IN (SELECT value FROM json_each(:phases)))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: count_states
-- The number of instances in each state of each workflow.
SELECT tool, state, count(*) FROM tasks
WHERE namespace = :namespace AND state IS NOT NULL AND (:owner IS NULL OR owner = :owner)
    AND (expires_at IS NULL OR expires_at > :now)
GROUP BY tool, state;

-- name: put_definition
-- Store the definition of a tool. The latest one counts.
INSERT INTO definitions (namespace, tool, tool_version, body) VALUES (:namespace, :tool, :tool_version, :body)
ON CONFLICT (namespace, tool, tool_version) DO UPDATE SET body = excluded.body WHERE body <> excluded.body;

-- name: needed_definitions
-- The definitions of the tools of live tasks.
SELECT tool, tool_version, body FROM definitions
WHERE namespace = :namespace AND (tool, tool_version) IN (
    SELECT tool, tool_version FROM tasks WHERE namespace = :namespace AND finished_at IS NULL
);

-- name: secret
-- The secret with this name.
SELECT bytes FROM secrets WHERE name = :name;

-- name: insert_secret
-- Insert a new secret. An existing one is not replaced, so the caller reads the secret afterwards.
INSERT INTO secrets (name, bytes) VALUES (:name, :bytes) ON CONFLICT (name) DO NOTHING;

-- name: durations
-- The duration histograms of the tools of a namespace.
SELECT tool, counts FROM durations WHERE namespace = :namespace;

-- name: put_durations
-- Store the duration histogram of a tool.
INSERT INTO durations (namespace, tool, counts) VALUES (:namespace, :tool, :counts)
ON CONFLICT (namespace, tool) DO UPDATE SET counts = excluded.counts;

-- name: count_live
-- The number of live tasks, by phase.
SELECT phase, count(*) FROM tasks
WHERE finished_at IS NULL AND (:namespace IS NULL OR namespace = :namespace) AND (:owner IS NULL OR owner = :owner)
GROUP BY phase;
