-- name: insert_task
-- Insert a new task with its first history entry, its arguments and caller, and its turn if it enters the queue. Creations of the
-- same owner wait for each other. Returns true (the task was not started), and the facts that a quota needs about the owner, as they
-- were before. If they exceed the quota, nothing is stored.
WITH admitted AS MATERIALIZED (
    SELECT live, latest FROM admit(%(namespace)s, %(owner)s, %(most_live)s, %(most_created)s, %(since)s)
), new AS (
    INSERT INTO tasks (
        id, namespace, owner, tool, tool_version, created_at, parent_id, idempotency_key, request_digest, priority, deadline_at,
        retry, keep, ttl, updated_at, phase, due_at, version, fence, failures, pausing, signals, open_inputs, entries,
        progress_done, progress_total, status_message, is_error, state, state_since, state_number, subject, turn, job_id
    ) SELECT
        %(id)s, %(namespace)s, %(owner)s, %(tool)s, %(tool_version)s, %(created_at)s, %(parent_id)s, %(idempotency_key)s,
        %(request_digest)s, %(priority)s, %(deadline_at)s, %(retry)s, %(keep)s, %(ttl)s, %(updated_at)s, %(phase)s, %(due_at)s,
        %(version)s, %(fence)s, 0, 0, 0, 0, %(entries)s, NULL, NULL, %(status_message)s, 0, %(state)s, %(state_since)s,
        %(state_number)s, %(subject)s,
        CASE WHEN %(enters)s THEN
            next_turn(%(namespace)s, %(owner)s, %(priority)s, false, %(tool)s, %(tool_version)s)
        ELSE 0 END,
        %(job_id)s
    FROM admitted WHERE (%(most_live)s = 0 OR live < %(most_live)s) AND latest IS NULL
    RETURNING pk
), entry AS (
    INSERT INTO history (task_pk, seq, at, event, before, after, attempt, actor, note, detail)
    SELECT pk, %(entry_seq)s::bigint, %(entry_at)s::bigint, %(entry_event)s, %(entry_before)s, %(entry_after)s,
        %(entry_attempt)s::bigint, %(entry_actor)s, %(entry_note)s, %(entry_detail)s::bytea
    FROM new
), arguments AS (
    INSERT INTO payloads (task_pk, kind, body) SELECT pk, 'arguments', %(arguments)s::bytea FROM new
), caller AS (
    INSERT INTO payloads (task_pk, kind, body) SELECT pk, 'caller', %(caller)s::bytea FROM new
    WHERE %(caller)s::bytea IS NOT NULL
)
SELECT true, live, latest, pg_notify(%(channel)s, %(news)s) FROM admitted;

-- name: insert_started
-- Insert a new task together with its attempt, if no other work waits that the creator could run. Otherwise the task is queued, as
-- above. Either way it is one statement, and the quota is counted alike. A start serves the task's queue up to its turn, which
-- matters only if another task waits in it.
WITH admitted AS MATERIALIZED (
    SELECT live, latest FROM admit(%(namespace)s, %(owner)s, %(most_live)s, %(most_created)s, %(since)s)
), waiting AS MATERIALIZED (
    SELECT something_waits(%(namespace)s, %(tools)s, %(versions)s, %(now)s) AS must_queue FROM admitted
), new AS (
    INSERT INTO tasks (
        id, namespace, owner, tool, tool_version, created_at, parent_id, idempotency_key, request_digest, priority, deadline_at,
        retry, keep, ttl, updated_at, phase, version, fence, entries, attempt_started_at, lease_holder, lease_expires_at, failures,
        pausing, signals, open_inputs, status_message, is_error, state, state_since, state_number, subject, turn, job_id
    ) SELECT
        %(id)s, %(namespace)s, %(owner)s, %(tool)s, %(tool_version)s, %(created_at)s, %(parent_id)s, %(idempotency_key)s,
        %(request_digest)s, %(priority)s, %(deadline_at)s, %(retry)s, %(keep)s, %(ttl)s,
        CASE WHEN must_queue THEN %(queued_updated_at)s ELSE %(updated_at)s END,
        CASE WHEN must_queue THEN 'queued' ELSE %(phase)s END,
        CASE WHEN must_queue THEN %(queued_version)s ELSE %(version)s END,
        CASE WHEN must_queue THEN %(queued_fence)s ELSE %(fence)s END,
        CASE WHEN must_queue THEN %(queued_entries)s ELSE %(entries)s END,
        CASE WHEN NOT must_queue THEN %(attempt_started_at)s END,
        CASE WHEN NOT must_queue THEN %(lease_holder)s END,
        CASE WHEN NOT must_queue THEN %(lease_expires_at)s END,
        0, 0, 0, 0, %(status_message)s, 0, %(state)s, %(state_since)s, %(state_number)s, %(subject)s,
        next_turn(%(namespace)s, %(owner)s, %(priority)s, false, %(tool)s, %(tool_version)s),
        CASE WHEN must_queue THEN (%(job_id)s)::bigint END
    FROM waiting, admitted WHERE (%(most_live)s = 0 OR live < %(most_live)s) AND latest IS NULL
    RETURNING pk, turn
), entries AS (
    INSERT INTO history (task_pk, seq, at, event, before, after, attempt, actor, note, detail)
    SELECT pk, seq, at, event, before, after, attempt, actor, note, decode(detail, 'hex')
    FROM new, waiting, jsonb_to_recordset(CASE WHEN must_queue THEN %(entry)s ELSE %(both_entries)s END::jsonb) AS entry (
        seq BIGINT, at BIGINT, event TEXT, before TEXT, after TEXT, attempt BIGINT, actor TEXT, note TEXT, detail TEXT
    )
), arguments AS (
    INSERT INTO payloads (task_pk, kind, body) SELECT pk, 'arguments', %(arguments)s::bytea FROM new
), caller AS (
    INSERT INTO payloads (task_pk, kind, body) SELECT pk, 'caller', %(caller)s::bytea FROM new
    WHERE %(caller)s::bytea IS NOT NULL
), line AS (
    INSERT INTO lines (namespace, priority, served) SELECT %(namespace)s, %(priority)s, turn FROM new, waiting
    WHERE NOT must_queue AND EXISTS (
        SELECT 1 FROM tasks WHERE namespace = %(namespace)s AND priority = %(priority)s AND phase = 'queued'
    )
    ON CONFLICT (namespace, priority) DO UPDATE SET served = greatest(lines.served, excluded.served)
)
SELECT must_queue, live, latest, pg_notify(%(channel)s, %(news)s) FROM waiting, admitted;

-- name: update_task
-- Change the record, if it is still the one that was read, and store the change's history entry, outcome and variables. The stored
-- lease of an attempt that continues is not overwritten: it may have been extended since. A start serves the task's queue up to its
-- turn. Returns the job that was queued with the task.
WITH changed AS (
    UPDATE tasks SET
        updated_at = %(updated_at)s, phase = %(phase)s, due_at = %(due_at)s, version = %(version)s, fence = %(fence)s,
        failures = %(failures)s, attempt_started_at = %(attempt_started_at)s, lease_holder = %(lease_holder)s,
        lease_expires_at = CASE
            WHEN phase = 'running' AND %(phase)s = 'running' THEN lease_expires_at ELSE %(lease_expires_at)s
        END,
        pausing = %(pausing)s, signals = %(signals)s, open_inputs = %(open_inputs)s, entries = %(entries)s,
        progress_done = %(progress_done)s, progress_total = %(progress_total)s, status_message = %(status_message)s,
        is_error = %(is_error)s, finished_at = %(finished_at)s, expires_at = %(expires_at)s,
        state = %(state)s, state_since = %(state_since)s, state_number = %(state_number)s,
        turn = CASE WHEN %(enters)s THEN next_turn(namespace, owner, priority, %(fence)s > 0, tool, tool_version) ELSE turn END,
        job_id = coalesce(%(job_id)s, job_id)
    WHERE id = %(id)s AND version = %(expected_version)s
        AND (%(lease_seen)s::bigint IS NULL OR lease_expires_at = %(lease_seen)s::bigint)
    RETURNING pk, job_id, namespace, priority, turn
), entry AS (
    INSERT INTO history (task_pk, seq, at, event, before, after, attempt, actor, note, detail)
    SELECT pk, %(entry_seq)s::bigint, %(entry_at)s::bigint, %(entry_event)s, %(entry_before)s, %(entry_after)s,
        %(entry_attempt)s::bigint, %(entry_actor)s, %(entry_note)s, %(entry_detail)s::bytea
    FROM changed WHERE %(entry_seq)s::bigint IS NOT NULL
), outcome AS (
    INSERT INTO payloads (task_pk, kind, body) SELECT pk, 'outcome', %(outcome)s::bytea FROM changed
    WHERE %(outcome)s::bytea IS NOT NULL
), variables AS (
    INSERT INTO payloads (task_pk, kind, body) SELECT pk, 'variables', %(variables)s::bytea FROM changed
    WHERE %(variables)s::bytea IS NOT NULL
    ON CONFLICT (task_pk, kind) DO UPDATE SET body = excluded.body
), line AS (
    INSERT INTO lines (namespace, priority, served) SELECT namespace, priority, turn FROM changed
    WHERE %(serves)s AND NOT EXISTS (
        SELECT 1 FROM lines
        WHERE lines.namespace = changed.namespace AND lines.priority = changed.priority AND served >= changed.turn
    )
    ON CONFLICT (namespace, priority) DO UPDATE SET served = greatest(lines.served, excluded.served)
)
SELECT pk, job_id, pg_notify(%(channel)s, %(news)s), %(withdrawal)s FROM changed;

-- name: lock_parent
-- Lock a parent, so that it can't change until this transaction ends.
SELECT * FROM tasks WHERE id = %(id)s FOR UPDATE;

-- name: lock_live_children
-- Lock the live children of a task, so that they can't change until this transaction ends.
SELECT * FROM tasks WHERE parent_id = %(id)s AND finished_at IS NULL ORDER BY pk FOR UPDATE;

-- name: insert_step
-- Insert a finished checkpoint. An existing one violates the unique constraint.
INSERT INTO steps (task_pk, name, occurrence, fingerprint, result, attempt, finished_at)
VALUES (%s, %s, %s, %s, %s, %s, %s);

-- name: delete_steps
-- Delete the checkpoints of an instance in the state that it leaves.
DELETE FROM steps WHERE task_pk = %(pk)s;

-- name: delete_answered_inputs
-- Delete the answered input requests of an instance in the state that it leaves.
DELETE FROM inputs WHERE task_pk = %(pk)s AND answered_at IS NOT NULL;

-- name: insert_input
-- Insert a new input request. A key that was used before violates the unique constraint.
INSERT INTO inputs (task_pk, key, kind, request, asked_at, attempt) VALUES (%s, %s, %s, %s, %s, %s);

-- name: answer_input
-- Store the answer to an input request.
UPDATE inputs SET answer = %s, answered_at = %s WHERE task_pk = %s AND key = %s;

-- name: put_artifact
-- Store an artifact, replacing one of the same name.
INSERT INTO artifacts (task_pk, name, content, kept_at) VALUES (%s, %s, %s, %s)
ON CONFLICT (task_pk, name) DO UPDATE SET content = excluded.content, kept_at = excluded.kept_at;

-- name: notify
-- Notify other handles that tasks changed.
SELECT pg_notify(%(channel)s, news) FROM unnest(%(news)s::text[]) AS news;

-- name: task_with_key
-- The owner's task with this idempotency key.
SELECT * FROM tasks
WHERE namespace = %(namespace)s AND owner = %(owner)s AND idempotency_key = %(key)s;

-- name: release_key
-- Free a task's idempotency key, if the task has this key. Nothing else in the record changes, so its version stays.
UPDATE tasks SET idempotency_key = NULL, request_digest = NULL WHERE id = %(id)s AND idempotency_key = %(key)s;

-- name: delete_task
-- Delete one task, with everything that belongs to it.
DELETE FROM tasks WHERE id = %(id)s;

-- name: due_tasks
-- Parked tasks of the requested tools that are due, the first to be due first. Tasks that another transaction has locked are skipped.
SELECT * FROM tasks
WHERE namespace = %(namespace)s AND phase = 'parked' AND due_at <= %(now)s
    AND (tool, tool_version) IN (SELECT * FROM unnest(%(tools)s::text[], %(versions)s::text[]))
ORDER BY due_at, id LIMIT %(due_limit)s FOR UPDATE SKIP LOCKED;

-- name: due_of_all
-- Parked tasks of all namespaces and tools that are due, the first to be due first. Tasks that another transaction has locked are
-- skipped.
SELECT * FROM tasks WHERE phase = 'parked' AND due_at <= %(now)s
ORDER BY due_at, id LIMIT %(due_limit)s FOR UPDATE SKIP LOCKED;

-- name: queued_tasks
-- The next tasks of the requested tools, each with its payloads, and whether it has steps, input requests or artifacts. Tasks that
-- another transaction has locked are skipped.
SELECT
    tasks.*,
    (SELECT body FROM payloads WHERE task_pk = pk AND kind = 'arguments'),
    (SELECT body FROM payloads WHERE task_pk = pk AND kind = 'caller'),
    (SELECT body FROM payloads WHERE task_pk = pk AND kind = 'variables'),
    EXISTS (SELECT 1 FROM steps WHERE task_pk = tasks.pk)
        OR EXISTS (SELECT 1 FROM inputs WHERE task_pk = tasks.pk)
        OR EXISTS (SELECT 1 FROM artifacts WHERE task_pk = tasks.pk)
FROM tasks
WHERE namespace = %(namespace)s AND phase = 'queued'
    AND (tool, tool_version) IN (SELECT * FROM unnest(%(tools)s::text[], %(versions)s::text[]))
ORDER BY priority DESC, turn, created_at, id LIMIT %(limit)s FOR UPDATE OF tasks SKIP LOCKED;

-- name: locked_queued_tasks
-- The next tasks of the requested tools, after waiting for the transactions that have locked them.
SELECT * FROM tasks
WHERE namespace = %(namespace)s AND phase = 'queued'
    AND (tool, tool_version) IN (SELECT * FROM unnest(%(tools)s::text[], %(versions)s::text[]))
ORDER BY priority DESC, turn, created_at, id LIMIT %(limit)s FOR UPDATE;

-- name: wait_briefly
-- Limit how long this transaction waits for locks.
SET LOCAL lock_timeout TO '1s';

-- name: waiting_tasks
-- The next tasks of the requested tools, without locking them.
SELECT * FROM tasks
WHERE namespace = %(namespace)s AND phase = 'queued'
    AND (tool, tool_version) IN (SELECT * FROM unnest(%(tools)s::text[], %(versions)s::text[]))
ORDER BY priority DESC, turn, created_at, id LIMIT %(limit)s;

-- name: next_due
-- Whether a task of the requested tools is queued, and when the first parked one is due.
SELECT
    EXISTS (
        SELECT 1 FROM tasks
        WHERE namespace = %(namespace)s AND phase = 'queued'
            AND (tool, tool_version) IN (SELECT * FROM unnest(%(tools)s::text[], %(versions)s::text[]))
    ),
    (
        SELECT due_at FROM tasks
        WHERE namespace = %(namespace)s AND phase = 'parked' AND due_at IS NOT NULL
            AND (tool, tool_version) IN (SELECT * FROM unnest(%(tools)s::text[], %(versions)s::text[]))
        ORDER BY due_at, id LIMIT 1
    );

-- name: first_due
-- When the first parked task is due, of all namespaces and tools.
SELECT due_at FROM tasks WHERE phase = 'parked' AND due_at IS NOT NULL ORDER BY due_at, id LIMIT 1;

-- name: extend_leases
-- Extend the leases of attempts that still hold their tasks, and return these tasks. Rows are locked in one order, since two such
-- statements might otherwise deadlock.
WITH held AS (
    SELECT pk FROM tasks
    JOIN unnest(%(ids)s::text[], %(fences)s::bigint[]) AS mine (id, fence) USING (id, fence)
    WHERE phase = 'running' ORDER BY pk FOR UPDATE OF tasks
)
UPDATE tasks SET lease_expires_at = %(until)s FROM held WHERE tasks.pk = held.pk RETURNING tasks.id;

-- name: overdue
-- Tasks whose lease has expired, and live ones whose deadline has passed, with the time of the database's clock.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, late.* FROM (SELECT 1) AS now LEFT JOIN (
    (SELECT * FROM tasks WHERE lease_expires_at <= %(now)s ORDER BY lease_expires_at LIMIT %(limit)s)
    UNION
    (
        SELECT * FROM tasks WHERE deadline_at <= %(now)s AND finished_at IS NULL
        ORDER BY deadline_at LIMIT %(limit)s
    )
) AS late ON true;

-- name: prune_tasks
-- Delete tasks that have expired, with everything that belongs to them. A live parent may still have to read its child.
DELETE FROM tasks WHERE pk IN (
    SELECT pk FROM tasks
    WHERE expires_at <= %(now)s
        AND NOT EXISTS (SELECT 1 FROM tasks AS parent WHERE parent.id = tasks.parent_id AND parent.finished_at IS NULL)
    ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
RETURNING id;

-- name: prune_named
-- Delete tasks with these ids that have ended, expired or not, with everything that belongs to them; unless a parent is live, as
-- above. They are deleted in the order in which they are named.
DELETE FROM tasks WHERE pk IN (
    SELECT pk FROM tasks JOIN unnest(%(only)s::text[]) WITH ORDINALITY AS named (id, place) USING (id)
    WHERE finished_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM tasks AS parent WHERE parent.id = tasks.parent_id AND parent.finished_at IS NULL)
    ORDER BY place LIMIT %(limit)s FOR UPDATE OF tasks
)
RETURNING id;

-- name: load_task
-- One task, if the reader may see it.
SELECT * FROM tasks
WHERE id = %(id)s AND (expires_at IS NULL OR expires_at > %(now)s)
    AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s) AND (%(owner)s::text IS NULL OR owner = %(owner)s);

-- name: view
-- One task, if the reader may see it, with its outcome.
SELECT tasks.*, (SELECT body FROM payloads WHERE task_pk = pk AND kind = 'outcome' AND finished_at IS NOT NULL) FROM tasks
WHERE id = %(id)s AND (expires_at IS NULL OR expires_at > %(now)s)
    AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s) AND (%(owner)s::text IS NULL OR owner = %(owner)s);

-- name: journal
-- One task, if the reader may see it, with its payloads, and whether it has steps, input requests or artifacts.
SELECT
    tasks.*,
    (SELECT body FROM payloads WHERE task_pk = pk AND kind = 'arguments'),
    (SELECT body FROM payloads WHERE task_pk = pk AND kind = 'caller'),
    (SELECT body FROM payloads WHERE task_pk = pk AND kind = 'variables'),
    EXISTS (SELECT 1 FROM steps WHERE task_pk = tasks.pk)
        OR EXISTS (SELECT 1 FROM inputs WHERE task_pk = tasks.pk)
        OR EXISTS (SELECT 1 FROM artifacts WHERE task_pk = tasks.pk)
FROM tasks
WHERE id = %(id)s AND (expires_at IS NULL OR expires_at > %(now)s)
    AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s) AND (%(owner)s::text IS NULL OR owner = %(owner)s);

-- name: open_inputs
-- The open input requests of a task.
SELECT key, kind, request, asked_at, attempt, answer, answered_at FROM inputs
WHERE task_pk = %(pk)s AND answered_at IS NULL ORDER BY pk;

-- name: all_inputs
-- All input requests of a task.
SELECT key, kind, request, asked_at, attempt, answer, answered_at FROM inputs WHERE task_pk = %(pk)s ORDER BY pk;

-- name: all_steps
-- All checkpoints of a task.
SELECT name, occurrence, fingerprint, result, attempt, finished_at FROM steps WHERE task_pk = %(pk)s ORDER BY pk;

-- name: artifact_names
-- The names of a task's artifacts.
SELECT name FROM artifacts WHERE task_pk = %(pk)s ORDER BY name;

-- name: artifact
-- One artifact of a task.
SELECT name, content, kept_at FROM artifacts WHERE task_pk = %(pk)s AND name = %(name)s;

-- name: history
-- A task's history after an entry.
SELECT seq, at, event, before, after, attempt, actor, note, detail FROM history
WHERE task_pk = %(pk)s AND seq > %(after)s ORDER BY seq LIMIT %(limit)s;

-- name: list_of_owner
-- One owner's tasks, newest first.
SELECT * FROM tasks
WHERE namespace = %(namespace)s AND owner = %(owner)s AND (created_at, id) < (%(created_at)s, %(id)s)
    AND (expires_at IS NULL OR expires_at > %(now)s)
    AND (%(tool)s::text IS NULL OR tool = %(tool)s) AND (%(phases)s::text[] IS NULL OR phase = ANY(%(phases)s::text[]))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s;

-- name: list_of_namespace
-- Every owner's tasks in one namespace, newest first.
SELECT * FROM tasks
WHERE namespace = %(namespace)s AND (created_at, id) < (%(created_at)s, %(id)s) AND (expires_at IS NULL OR expires_at > %(now)s)
    AND (%(tool)s::text IS NULL OR tool = %(tool)s) AND (%(phases)s::text[] IS NULL OR phase = ANY(%(phases)s::text[]))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s;

-- name: list_all
-- All tasks, or one owner's in all namespaces, newest first.
SELECT * FROM tasks
WHERE (created_at, id) < (%(created_at)s, %(id)s) AND (expires_at IS NULL OR expires_at > %(now)s)
    AND (%(owner)s::text IS NULL OR owner = %(owner)s)
    AND (%(tool)s::text IS NULL OR tool = %(tool)s) AND (%(phases)s::text[] IS NULL OR phase = ANY(%(phases)s::text[]))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s;

-- name: list_of_parent
-- One task's children, newest first.
SELECT * FROM tasks
WHERE parent_id = %(parent_id)s AND (created_at, id) < (%(created_at)s, %(id)s) AND (expires_at IS NULL OR expires_at > %(now)s)
    AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s) AND (%(owner)s::text IS NULL OR owner = %(owner)s)
    AND (%(tool)s::text IS NULL OR tool = %(tool)s) AND (%(phases)s::text[] IS NULL OR phase = ANY(%(phases)s::text[]))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s;

-- name: list_of_state
-- Instances of one workflow that are in a state, newest first.
SELECT * FROM tasks
WHERE namespace = %(namespace)s AND tool = %(tool)s AND state = %(state)s AND (created_at, id) < (%(created_at)s, %(id)s)
    AND (expires_at IS NULL OR expires_at > %(now)s) AND (%(owner)s::text IS NULL OR owner = %(owner)s)
    AND (%(subject)s::text IS NULL OR subject = %(subject)s)
    AND (%(phases)s::text[] IS NULL OR phase = ANY(%(phases)s::text[]))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s;

-- name: list_of_subject
-- Instances with a subject, newest first.
SELECT * FROM tasks
WHERE namespace = %(namespace)s AND subject = %(subject)s AND (created_at, id) < (%(created_at)s, %(id)s)
    AND (expires_at IS NULL OR expires_at > %(now)s) AND (%(owner)s::text IS NULL OR owner = %(owner)s)
    AND (%(tool)s::text IS NULL OR tool = %(tool)s) AND (%(phases)s::text[] IS NULL OR phase = ANY(%(phases)s::text[]))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s;

-- name: count_states
-- The number of instances in each state of each workflow.
SELECT tool, state, count(*) FROM tasks
WHERE namespace = %(namespace)s AND state IS NOT NULL AND (%(owner)s::text IS NULL OR owner = %(owner)s)
    AND (expires_at IS NULL OR expires_at > %(now)s)
GROUP BY tool, state;

-- name: put_definition
-- Store the definition of a tool. The latest one counts.
INSERT INTO definitions (namespace, tool, tool_version, body) VALUES (%(namespace)s, %(tool)s, %(tool_version)s, %(body)s)
ON CONFLICT (namespace, tool, tool_version) DO UPDATE SET body = excluded.body WHERE definitions.body <> excluded.body;

-- name: needed_definitions
-- The definitions of the tools of live tasks.
SELECT tool, tool_version, body FROM definitions
WHERE namespace = %(namespace)s AND (tool, tool_version) IN (
    SELECT tool, tool_version FROM tasks WHERE namespace = %(namespace)s AND finished_at IS NULL
);

-- name: secret
-- The secret with this name.
SELECT bytes FROM secrets WHERE name = %(name)s;

-- name: insert_secret
-- Insert a new secret. An existing one is not replaced, so the caller reads the secret afterwards.
INSERT INTO secrets (name, bytes) VALUES (%(name)s, %(bytes)s) ON CONFLICT (name) DO NOTHING;

-- name: durations
-- The duration histograms of the tools of a namespace.
SELECT tool, counts FROM durations WHERE namespace = %(namespace)s;

-- name: lock_durations
-- Lock the durations of a namespace until this transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' durations ' || %(namespace)s, 0));

-- name: put_durations
-- Store the duration histogram of a tool.
INSERT INTO durations (namespace, tool, counts) VALUES (%(namespace)s, %(tool)s, %(counts)s)
ON CONFLICT (namespace, tool) DO UPDATE SET counts = excluded.counts;

-- name: count_live
-- The number of live tasks, by phase.
SELECT phase, count(*) FROM tasks
WHERE finished_at IS NULL AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
    AND (%(owner)s::text IS NULL OR owner = %(owner)s)
GROUP BY phase;

-- name: clock
-- The time of the database's clock, in microseconds.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
