-- Times and durations are whole microseconds (times since 1970 in UTC). Owners are JSON, see core/owner.py. Texts sort by
-- their bytes, whatever the database's collation is, so that every store lists tasks alike.

-- A task's record: small, and rewritten with every change, so nothing large is stored here.
CREATE TABLE tasks (
    pk BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    namespace TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    tool TEXT COLLATE "C" NOT NULL,
    tool_version TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    parent_id TEXT COLLATE "C",
    idempotency_key TEXT COLLATE "C",
    request_digest TEXT COLLATE "C",
    priority BIGINT NOT NULL,
    deadline_at BIGINT,
    retry TEXT COLLATE "C" NOT NULL,
    keep BIGINT NOT NULL,
    ttl BIGINT,
    updated_at BIGINT NOT NULL,
    phase TEXT COLLATE "C" NOT NULL,
    due_at BIGINT,
    version BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    attempt_started_at BIGINT,
    lease_holder TEXT COLLATE "C",
    lease_expires_at BIGINT,
    pausing BIGINT NOT NULL,
    signals BIGINT NOT NULL,
    open_inputs BIGINT NOT NULL CHECK (open_inputs >= 0),
    entries BIGINT NOT NULL,
    progress_done DOUBLE PRECISION,
    progress_total DOUBLE PRECISION,
    status_message TEXT,
    is_error BIGINT NOT NULL,
    finished_at BIGINT,
    expires_at BIGINT,
    turn BIGINT NOT NULL DEFAULT 0,
    -- The state of an instance in its workflow, and its subject.
    state TEXT COLLATE "C",
    state_since BIGINT,
    state_number BIGINT,
    subject TEXT COLLATE "C",
    -- The job that was queued with the task when it last entered the queue.
    job_id BIGINT,
    CHECK (phase IN ('queued', 'running', 'parked', 'paused', 'completed', 'failed', 'cancelled')),
    CHECK ((phase IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK ((finished_at IS NULL) = (expires_at IS NULL)),
    CHECK ((phase = 'running') = (lease_expires_at IS NOT NULL)),
    CHECK ((lease_expires_at IS NULL) = (lease_holder IS NULL)),
    CHECK ((lease_expires_at IS NULL) = (attempt_started_at IS NULL)),
    CHECK ((idempotency_key IS NULL) = (request_digest IS NULL)),
    CHECK ((state IS NULL) = (state_since IS NULL) AND (state IS NULL) = (state_number IS NULL)),
    CHECK (due_at IS NULL OR phase IN ('parked', 'paused'))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- The last line of defence: whatever a program does, a task changes its phase only as the lifecycle table allows.
CREATE FUNCTION refuse_change_of_phase() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the lifecycle does not allow this change of phase' USING ERRCODE = 'check_violation';
END;
$$;

CREATE TRIGGER tasks_follow_the_lifecycle BEFORE UPDATE OF phase ON tasks FOR EACH ROW
WHEN (OLD.phase || ' ' || NEW.phase NOT IN (
    'queued queued', 'queued running', 'queued paused', 'queued failed', 'queued cancelled',
    'running running', 'running queued', 'running parked', 'running paused', 'running completed', 'running failed',
    'running cancelled',
    'parked queued', 'parked paused', 'parked failed', 'parked cancelled',
    'paused paused', 'paused parked', 'paused failed', 'paused cancelled'
))
EXECUTE FUNCTION refuse_change_of_phase();

-- Lists, newest first: one owner's, one namespace's, all.
CREATE INDEX tasks_of_owner ON tasks (namespace, owner, created_at, id);
CREATE INDEX tasks_of_namespace ON tasks (namespace, created_at, id);
CREATE INDEX tasks_by_creation ON tasks (created_at, id);
CREATE INDEX tasks_of_parent ON tasks (parent_id, created_at, id) WHERE parent_id IS NOT NULL;
CREATE UNIQUE INDEX tasks_by_key ON tasks (namespace, owner, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX tasks_of_state ON tasks (namespace, tool, state, created_at, id) WHERE state IS NOT NULL;
CREATE INDEX tasks_of_subject ON tasks (namespace, subject, created_at, id) WHERE subject IS NOT NULL;
-- Searches for work. Each index holds only the tasks that its search can find, so finished tasks cost nothing here.
CREATE INDEX tasks_in_line ON tasks (namespace, priority DESC, turn, created_at, id, tool, tool_version)
WHERE phase = 'queued';
CREATE INDEX tasks_by_turn ON tasks (namespace, owner, priority, (fence > 0), turn) WHERE phase = 'queued';
CREATE INDEX tasks_of_tool ON tasks (namespace, tool, tool_version, priority, turn) WHERE phase = 'queued';
CREATE INDEX tasks_due ON tasks (due_at, id) WHERE phase = 'parked' AND due_at IS NOT NULL;
CREATE INDEX tasks_leased ON tasks (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX tasks_with_deadline ON tasks (deadline_at) WHERE deadline_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX tasks_expiring ON tasks (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX tasks_live ON tasks (namespace, owner, phase) WHERE finished_at IS NULL;

-- How far each queue (a namespace and a priority) has been served: the highest turn that was ever claimed from it.
CREATE TABLE lines (
    namespace TEXT COLLATE "C" NOT NULL,
    priority BIGINT NOT NULL,
    served BIGINT NOT NULL,
    PRIMARY KEY (namespace, priority)
) WITH (fillfactor = 50);

-- The turn of a task that enters the queue: after the last one of the same owner and kind, and after the turn that has been served
-- for the tool. That is the served turn of the queue or, if tasks of the tool still wait from earlier turns, the first of these.
-- Whole rows are compared, here and below, so that only one index fits (tasks_by_turn, tasks_of_tool): while the queue is
-- empty, which is when plans are made, other indexes look as good, but are not when the queue is long.
CREATE FUNCTION next_turn(
    its_namespace TEXT, its_owner TEXT, its_priority BIGINT, has_begun BOOLEAN, its_tool TEXT, its_version TEXT
) RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    line_served BIGINT := coalesce((
        SELECT served FROM lines WHERE namespace = its_namespace AND priority = its_priority
    ), 0);
BEGIN
    RETURN 1 + greatest(
        coalesce((
            SELECT turn FROM tasks
            WHERE (namespace, owner, priority, (fence > 0), turn) >= (its_namespace, its_owner, its_priority, has_begun, 0)
                AND (namespace, owner, priority, (fence > 0)) <= (its_namespace, its_owner, its_priority, has_begun)
                AND phase = 'queued'
            ORDER BY namespace DESC, owner DESC, priority DESC, (fence > 0) DESC, turn DESC LIMIT 1
        ), 0),
        coalesce((
            SELECT turn FROM tasks
            WHERE (namespace, tool, tool_version, priority, turn) >= (its_namespace, its_tool, its_version, its_priority, 0)
                AND (namespace, tool, tool_version, priority, turn)
                    < (its_namespace, its_tool, its_version, its_priority, line_served)
                AND phase = 'queued'
            ORDER BY namespace, tool, tool_version, priority, turn LIMIT 1
        ), line_served)
    );
END;
$$;

-- Whether any task of these tools waits: queued, or parked and due. (A function, since it runs after a wait for the owner's other
-- creations, and has to see what is stored by then.)
CREATE FUNCTION something_waits(its_namespace TEXT, tools TEXT[], versions TEXT[], moment BIGINT)
RETURNS BOOLEAN LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM unnest(tools, versions) AS mine (its_tool, its_version), LATERAL (
            SELECT 1 FROM tasks
            WHERE (namespace, tool, tool_version) >= (its_namespace, its_tool, its_version)
                AND (namespace, tool, tool_version) <= (its_namespace, its_tool, its_version)
                AND phase = 'queued'
            ORDER BY namespace, tool, tool_version, priority, turn LIMIT 1
        ) AS queued
    ) OR EXISTS (
        SELECT 1 FROM (
            SELECT namespace, tool, tool_version FROM tasks WHERE phase = 'parked' AND due_at <= moment
            ORDER BY due_at, id OFFSET 0
        ) AS due
        WHERE namespace = its_namespace AND (tool, tool_version) IN (SELECT * FROM unnest(tools, versions))
    );
END;
$$;

-- The facts that a quota needs about an owner: the number of live tasks, counted no further than the limit, and the creation time of
-- the n-th latest task, if it is after a given time. It blocks other creations of the same owner until this transaction ends: the
-- counted tasks must not change in between. (So it is a function: a separate statement would count what was stored before it
-- waited.)
CREATE FUNCTION admit(
    its_namespace TEXT, its_owner TEXT, most_live BIGINT, most_created BIGINT, since BIGINT,
    OUT live BIGINT, OUT latest BIGINT
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || its_namespace || ' ' || its_owner, 0));
    SELECT count(*) INTO live FROM (
        SELECT 1 FROM tasks WHERE namespace = its_namespace AND owner = its_owner AND finished_at IS NULL LIMIT most_live
    ) AS counted;
    IF most_created IS NOT NULL THEN
        SELECT created_at INTO latest FROM tasks
        WHERE namespace = its_namespace AND owner = its_owner AND created_at > since
        ORDER BY created_at DESC LIMIT 1 OFFSET most_created - 1;
    END IF;
END;
$$;

-- Data of a task that may be large, one of each kind: arguments, caller, variables, outcome. Plain JSON or sealed.
CREATE TABLE payloads (
    task_pk BIGINT NOT NULL REFERENCES tasks ON DELETE CASCADE,
    kind TEXT COLLATE "C" NOT NULL CHECK (kind IN ('arguments', 'caller', 'variables', 'outcome')),
    body BYTEA NOT NULL,
    PRIMARY KEY (task_pk, kind)
);

-- Every change of a task, in order and without gaps.
CREATE TABLE history (
    task_pk BIGINT NOT NULL REFERENCES tasks ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    event TEXT COLLATE "C" NOT NULL,
    before TEXT COLLATE "C",
    after TEXT COLLATE "C" NOT NULL,
    attempt BIGINT NOT NULL,
    actor TEXT NOT NULL,
    note TEXT,
    detail BYTEA,
    PRIMARY KEY (task_pk, seq)
);

-- Finished checkpoints.
CREATE TABLE steps (
    pk BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    task_pk BIGINT NOT NULL REFERENCES tasks ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    occurrence BIGINT NOT NULL,
    fingerprint TEXT COLLATE "C" NOT NULL,
    result BYTEA NOT NULL,
    attempt BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    UNIQUE (task_pk, name, occurrence)
);

-- Input requests to the caller, and their answers.
CREATE TABLE inputs (
    pk BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    task_pk BIGINT NOT NULL REFERENCES tasks ON DELETE CASCADE,
    key TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    request BYTEA NOT NULL,
    asked_at BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    answer BYTEA,
    answered_at BIGINT,
    UNIQUE (task_pk, key),
    CHECK ((answer IS NULL) = (answered_at IS NULL))
);

-- Intermediate results.
CREATE TABLE artifacts (
    pk BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    task_pk BIGINT NOT NULL REFERENCES tasks ON DELETE CASCADE,
    name TEXT COLLATE "C" NOT NULL,
    content BYTEA NOT NULL,
    kept_at BIGINT NOT NULL,
    UNIQUE (task_pk, name)
);

-- Keys that servers sign and hash with, each created when it is first requested. They are never replaced.
CREATE TABLE secrets (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    bytes BYTEA NOT NULL CHECK (length(bytes) = 32)
);

-- The duration histogram of each tool, as text, see core/histogram.py.
CREATE TABLE durations (
    namespace TEXT COLLATE "C" NOT NULL,
    tool TEXT COLLATE "C" NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (namespace, tool)
);

-- Definitions of tools from workflow files, so that their tasks can continue when the file has changed.
CREATE TABLE definitions (
    namespace TEXT COLLATE "C" NOT NULL,
    tool TEXT COLLATE "C" NOT NULL,
    tool_version TEXT COLLATE "C" NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (namespace, tool, tool_version)
);
