-- Times and durations are whole microseconds (times since 1970 in UTC). Owners are JSON, see core/owner.py.

-- A task's record: small, and rewritten with every change, so nothing large is stored here.
CREATE TABLE tasks (
    pk INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    owner TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    parent_id TEXT,
    idempotency_key TEXT,
    request_digest TEXT,
    priority INTEGER NOT NULL,
    deadline_at INTEGER,
    retry TEXT NOT NULL,
    keep INTEGER NOT NULL,
    ttl INTEGER,
    updated_at INTEGER NOT NULL,
    phase TEXT NOT NULL,
    due_at INTEGER,
    version INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    attempt_started_at INTEGER,
    lease_holder TEXT,
    lease_expires_at INTEGER,
    pausing INTEGER NOT NULL,
    signals INTEGER NOT NULL,
    open_inputs INTEGER NOT NULL CHECK (open_inputs >= 0),
    entries INTEGER NOT NULL,
    progress_done REAL,
    progress_total REAL,
    status_message TEXT,
    is_error INTEGER NOT NULL,
    finished_at INTEGER,
    expires_at INTEGER,
    turn INTEGER NOT NULL DEFAULT 0,
    state TEXT,
    state_since INTEGER,
    state_number INTEGER,
    subject TEXT,
    CHECK (phase IN ('queued', 'running', 'parked', 'paused', 'completed', 'failed', 'cancelled')),
    CHECK ((phase IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK ((finished_at IS NULL) = (expires_at IS NULL)),
    CHECK ((phase = 'running') = (lease_expires_at IS NOT NULL)),
    CHECK ((lease_expires_at IS NULL) = (lease_holder IS NULL)),
    CHECK ((lease_expires_at IS NULL) = (attempt_started_at IS NULL)),
    CHECK ((idempotency_key IS NULL) = (request_digest IS NULL)),
    CHECK (due_at IS NULL OR phase IN ('parked', 'paused'))
) STRICT;

-- The last line of defence: whatever a program does, a task changes its phase only as the lifecycle table allows.
CREATE TRIGGER tasks_follow_the_lifecycle BEFORE UPDATE OF phase ON tasks
WHEN OLD.phase || ' ' || NEW.phase NOT IN (
    'queued queued', 'queued running', 'queued paused', 'queued failed', 'queued cancelled',
    'running running', 'running queued', 'running parked', 'running paused', 'running completed', 'running failed',
    'running cancelled',
    'parked queued', 'parked paused', 'parked failed', 'parked cancelled',
    'paused paused', 'paused parked', 'paused failed', 'paused cancelled'
)
BEGIN
    SELECT RAISE(ABORT, 'the lifecycle does not allow this change of phase');
END;

-- Lists, newest first: one owner's, one namespace's, all.
CREATE INDEX tasks_of_owner ON tasks (namespace, owner, created_at, id);
CREATE INDEX tasks_of_namespace ON tasks (namespace, created_at, id);
CREATE INDEX tasks_by_creation ON tasks (created_at, id);
CREATE INDEX tasks_of_parent ON tasks (parent_id, created_at, id) WHERE parent_id IS NOT NULL;
CREATE UNIQUE INDEX tasks_by_key ON tasks (namespace, owner, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- Searches for work. Each index holds only the tasks that its search can find, so finished tasks cost nothing here.
CREATE INDEX tasks_in_line ON tasks (namespace, priority DESC, turn, created_at, id, tool, tool_version)
WHERE phase = 'queued';
CREATE INDEX tasks_by_turn ON tasks (namespace, owner, priority, fence > 0, turn) WHERE phase = 'queued';
CREATE INDEX tasks_of_tool ON tasks (namespace, tool, tool_version, priority, turn) WHERE phase = 'queued';
CREATE INDEX tasks_due ON tasks (namespace, due_at, id, tool, tool_version)
WHERE phase = 'parked' AND due_at IS NOT NULL;
CREATE INDEX tasks_leased ON tasks (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX tasks_with_deadline ON tasks (deadline_at) WHERE deadline_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX tasks_expiring ON tasks (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX tasks_of_state ON tasks (namespace, tool, state, created_at, id) WHERE state IS NOT NULL;
CREATE INDEX tasks_of_subject ON tasks (namespace, subject, created_at, id) WHERE subject IS NOT NULL;
CREATE INDEX tasks_live ON tasks (namespace, owner) WHERE finished_at IS NULL;

-- How far each queue (a namespace and a priority) has been served: the highest turn that was ever claimed from it.
CREATE TABLE lines (
    namespace TEXT NOT NULL,
    priority INTEGER NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (namespace, priority)
) STRICT, WITHOUT ROWID;

-- Data of a task that may be large, one of each kind: arguments, caller, variables, outcome. Plain JSON or sealed.
CREATE TABLE payloads (
    task_pk INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('arguments', 'caller', 'variables', 'outcome')),
    body BLOB NOT NULL,
    PRIMARY KEY (task_pk, kind)
) STRICT, WITHOUT ROWID;

-- Every change of a task, in order and without gaps.
CREATE TABLE history (
    task_pk INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    before TEXT,
    after TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    actor TEXT NOT NULL,
    note TEXT,
    detail BLOB,
    PRIMARY KEY (task_pk, seq)
) STRICT, WITHOUT ROWID;

-- Finished checkpoints.
CREATE TABLE steps (
    pk INTEGER PRIMARY KEY,
    task_pk INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
    name TEXT NOT NULL,
    occurrence INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    result BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    UNIQUE (task_pk, name, occurrence)
) STRICT;

-- Input requests to the caller, and their answers.
CREATE TABLE inputs (
    pk INTEGER PRIMARY KEY,
    task_pk INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    request BLOB NOT NULL,
    asked_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    answer BLOB,
    answered_at INTEGER,
    UNIQUE (task_pk, key),
    CHECK ((answer IS NULL) = (answered_at IS NULL))
) STRICT;

-- Intermediate results.
CREATE TABLE artifacts (
    pk INTEGER PRIMARY KEY,
    task_pk INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
    name TEXT NOT NULL,
    content BLOB NOT NULL,
    kept_at INTEGER NOT NULL,
    UNIQUE (task_pk, name)
) STRICT;

-- A log of changed tasks, by which other processes on this file notice them. Only the newest rows are stored.
CREATE TABLE changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL,
    origin TEXT NOT NULL
) STRICT;

-- Keys that servers sign and hash with, each created when it is first requested. They are never replaced.
CREATE TABLE secrets (
    name TEXT NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL CHECK (length(bytes) = 32)
) STRICT, WITHOUT ROWID;

-- The duration histogram of each tool, as text, see core/histogram.py.
CREATE TABLE durations (
    namespace TEXT NOT NULL,
    tool TEXT NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (namespace, tool)
) STRICT, WITHOUT ROWID;

-- Definitions of tools from workflow files, so that their tasks can continue when the file has changed.
CREATE TABLE definitions (
    namespace TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (namespace, tool, tool_version)
) STRICT, WITHOUT ROWID;

-- The latest time of this file, written when leases are extended, so that its time does not run backwards after a restart.
CREATE TABLE clock (
    pk INTEGER PRIMARY KEY CHECK (pk = 1),
    latest INTEGER NOT NULL
) STRICT;
