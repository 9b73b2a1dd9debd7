-- A store of schema version 5 whose server was killed: a finished task, two that wait for answers, an instance of a state
-- machine, one in the middle of its work, and two in the queue. Written by raincheck before its modules were renamed.
BEGIN TRANSACTION;
CREATE TABLE artifacts (
    pk INTEGER PRIMARY KEY,
    task_pk INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
    name TEXT NOT NULL,
    content BLOB NOT NULL,
    kept_at INTEGER NOT NULL,
    UNIQUE (task_pk, name)
) STRICT;
CREATE TABLE changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL,
    origin TEXT NOT NULL
) STRICT;
INSERT INTO "changes" VALUES(1,'01a1f201f44fd2dd605edd64f36776917935e1a0474e','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(2,'01a1f201f44fd2dd605edd64f36776917935e1a0474e','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(3,'01a1f201f455fb482fe60075c09ca358ad0ee6a10b05','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(4,'01a1f201f456cdbf25d7197d560fda4fdf6d0956f375','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(5,'01a1f201f455fb482fe60075c09ca358ad0ee6a10b05','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(6,'01a1f201f457939f0a8ecc8b0f4f9eb2a8c39072c69c','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(7,'01a1f201f456cdbf25d7197d560fda4fdf6d0956f375','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(8,'01a1f201f456cdbf25d7197d560fda4fdf6d0956f375','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(9,'01a1f201f4593be85fbe2ce39dbca94ded1f8f35e84b','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(10,'01a1f201f456cdbf25d7197d560fda4fdf6d0956f375','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(11,'01a1f201f4593be85fbe2ce39dbca94ded1f8f35e84b','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(12,'01a1f201f4593be85fbe2ce39dbca94ded1f8f35e84b','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(13,'01a1f201f4593be85fbe2ce39dbca94ded1f8f35e84b','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(14,'01a1f201f455fb482fe60075c09ca358ad0ee6a10b05','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(15,'01a1f201f457939f0a8ecc8b0f4f9eb2a8c39072c69c','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(16,'01a1f201f456cdbf25d7197d560fda4fdf6d0956f375','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(17,'01a1f201f48f79f0125cfd391d8d1fca6d9208c92e25','1d08c5aea878abc2');
INSERT INTO "changes" VALUES(18,'01a1f201f49071664a8bcf516371ccf31c9d4616f5a8','1d08c5aea878abc2');
CREATE TABLE definitions (
    namespace TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (namespace, tool, tool_version)
) STRICT, WITHOUT ROWID;
CREATE TABLE durations (
    namespace TEXT NOT NULL,
    tool TEXT NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (namespace, tool)
) STRICT, WITHOUT ROWID;
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
INSERT INTO "history" VALUES(1,1,1795061576783909,'create',NULL,'queued',0,'caller',NULL,NULL);
INSERT INTO "history" VALUES(1,2,1795061576783909,'claim','queued','running',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(1,3,1795061576788014,'complete','running','completed',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(2,1,1795061576789267,'create',NULL,'queued',0,'caller',NULL,NULL);
INSERT INTO "history" VALUES(2,2,1795061576789267,'claim','queued','running',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(2,3,1795061576790349,'note','running','running',1,'laptop:25837:19e5f6b0:direct','asked elicit-0',NULL);
INSERT INTO "history" VALUES(2,4,1795061576842152,'park','running','parked',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(3,1,1795061576790038,'create',NULL,'queued',0,'caller',NULL,NULL);
INSERT INTO "history" VALUES(3,2,1795061576790038,'claim','queued','running',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(3,3,1795061576791699,'note','running','running',1,'laptop:25837:19e5f6b0:direct','step rows',NULL);
INSERT INTO "history" VALUES(3,4,1795061576793725,'note','running','running',1,'laptop:25837:19e5f6b0:direct','rows',NULL);
INSERT INTO "history" VALUES(3,5,1795061576795181,'note','running','running',1,'laptop:25837:19e5f6b0:direct','asked agreed-0',NULL);
INSERT INTO "history" VALUES(3,6,1795061576846840,'park','running','parked',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(4,1,1795061576791196,'create',NULL,'queued',0,'caller',NULL,NULL);
INSERT INTO "history" VALUES(4,2,1795061576791196,'claim','queued','running',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(4,3,1795061576844737,'park','running','parked',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(5,1,1795061576793596,'create',NULL,'queued',0,'caller',NULL,NULL);
INSERT INTO "history" VALUES(5,2,1795061576793596,'claim','queued','running',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(5,3,1795061576795292,'note','running','running',1,'laptop:25837:19e5f6b0:direct','step load',NULL);
INSERT INTO "history" VALUES(5,4,1795061576795966,'note','running','running',1,'laptop:25837:19e5f6b0:direct','step load',NULL);
INSERT INTO "history" VALUES(5,5,1795061576796600,'note','running','running',1,'laptop:25837:19e5f6b0:direct','half',NULL);
INSERT INTO "history" VALUES(6,1,1795061576847628,'create',NULL,'queued',0,'caller',NULL,NULL);
INSERT INTO "history" VALUES(6,2,1795061576847628,'claim','queued','running',1,'laptop:25837:19e5f6b0:direct',NULL,NULL);
INSERT INTO "history" VALUES(7,1,1795061576848492,'create',NULL,'queued',0,'caller',NULL,NULL);
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
INSERT INTO "inputs" VALUES(1,2,'elicit-0','elicitation',X'7B226D657373616765223A22476F206F6E3F222C22726571756573746564536368656D61223A7B2274797065223A226F626A656374222C2270726F70657274696573223A7B226F6B223A7B2274797065223A22626F6F6C65616E227D7D7D7D',1795061576790334,1,NULL,NULL);
INSERT INTO "inputs" VALUES(2,3,'agreed-0','elicitation',X'7B226D657373616765223A225075626C69736820343034383F222C22726571756573746564536368656D61223A7B2274797065223A226F626A656374222C2270726F70657274696573223A7B226F6B223A7B2274797065223A22626F6F6C65616E227D7D2C227265717569726564223A5B226F6B225D2C226164646974696F6E616C50726F70657274696573223A66616C73657D7D',1795061576794038,1,NULL,NULL);
CREATE TABLE lines (
    namespace TEXT NOT NULL,
    priority INTEGER NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (namespace, priority)
) STRICT, WITHOUT ROWID;
CREATE TABLE payloads (
    task_pk INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('arguments', 'caller', 'variables', 'outcome')),
    body BLOB NOT NULL,
    PRIMARY KEY (task_pk, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO "payloads" VALUES(1,'arguments',X'7B226E756D626572223A347D');
INSERT INTO "payloads" VALUES(1,'outcome',X'38');
INSERT INTO "payloads" VALUES(2,'arguments',X'7B226E756D626572223A337D');
INSERT INTO "payloads" VALUES(3,'arguments',X'7B2279656172223A323032347D');
INSERT INTO "payloads" VALUES(4,'arguments',X'7B7D');
INSERT INTO "payloads" VALUES(5,'arguments',X'7B2279656172223A323032367D');
INSERT INTO "payloads" VALUES(6,'arguments',X'7B226E756D626572223A307D');
INSERT INTO "payloads" VALUES(7,'arguments',X'7B226E756D626572223A317D');
CREATE TABLE secrets (
    name TEXT NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL CHECK (length(bytes) = 32)
) STRICT, WITHOUT ROWID;
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
INSERT INTO "steps" VALUES(1,3,'rows',0,'step:5eed25f9aa1c6813',X'7B226F6B223A343034387D',1,1795061576791690);
INSERT INTO "steps" VALUES(2,5,'load',0,'step:c767f2c4951965da',X'2270617274203022',1,1795061576795286);
INSERT INTO "steps" VALUES(3,5,'load',1,'step:27b6c79168db2da0',X'2270617274203122',1,1795061576795961);
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
    expires_at INTEGER, turn INTEGER NOT NULL DEFAULT 0, state TEXT, state_since INTEGER, state_number INTEGER, subject TEXT,
    CHECK (phase IN ('queued', 'running', 'parked', 'paused', 'completed', 'failed', 'cancelled')),
    CHECK ((phase IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK ((finished_at IS NULL) = (expires_at IS NULL)),
    CHECK ((phase = 'running') = (lease_expires_at IS NOT NULL)),
    CHECK ((lease_expires_at IS NULL) = (lease_holder IS NULL)),
    CHECK ((lease_expires_at IS NULL) = (attempt_started_at IS NULL)),
    CHECK ((idempotency_key IS NULL) = (request_digest IS NULL)),
    CHECK (due_at IS NULL OR phase IN ('parked', 'paused'))
) STRICT;
INSERT INTO "tasks" VALUES(1,'01a1f201f44fd2dd605edd64f36776917935e1a0474e','reports','["local"]','quick','1',1795061576783909,NULL,NULL,NULL,0,NULL,'{"attempts": 3, "first": 1000000, "factor": 2.0, "most": 300000000, "jitter": 0.5, "on_interrupt": "retry"}',86400000000,NULL,1795061576788014,'completed',NULL,3,1,0,NULL,NULL,NULL,0,0,0,3,NULL,NULL,NULL,0,1795061576788014,1795147976788014,1,NULL,NULL,NULL,NULL);
INSERT INTO "tasks" VALUES(2,'01a1f201f455fb482fe60075c09ca358ad0ee6a10b05','reports','["local"]','ask','1',1795061576789267,NULL,NULL,NULL,0,NULL,'{"attempts": 3, "first": 1000000, "factor": 2.0, "most": 300000000, "jitter": 0.5, "on_interrupt": "retry"}',86400000000,NULL,1795061576842152,'parked',NULL,4,1,0,NULL,NULL,NULL,0,0,1,4,NULL,NULL,NULL,0,NULL,NULL,1,NULL,NULL,NULL,NULL);
INSERT INTO "tasks" VALUES(3,'01a1f201f456cdbf25d7197d560fda4fdf6d0956f375','reports','["local"]','publish','5009dca6437b',1795061576790038,NULL,NULL,NULL,0,NULL,'{"attempts": 3, "first": 1000000, "factor": 2.0, "most": 300000000, "jitter": 0.5, "on_interrupt": "retry"}',86400000000,NULL,1795061576846840,'parked',NULL,6,1,0,NULL,NULL,NULL,0,0,1,6,1.0,2.0,'agreed',0,NULL,NULL,1,NULL,NULL,NULL,NULL);
INSERT INTO "tasks" VALUES(4,'01a1f201f457939f0a8ecc8b0f4f9eb2a8c39072c69c','reports','["local"]','review','b1bdf0e092b0',1795061576791196,NULL,NULL,NULL,0,NULL,'{"attempts": 3, "first": 1000000, "factor": 2.0, "most": 300000000, "jitter": 0.5, "on_interrupt": "retry"}',86400000000,NULL,1795061576844737,'parked',NULL,3,1,0,NULL,NULL,NULL,0,0,0,3,NULL,NULL,'draft',0,NULL,NULL,1,'draft',1795061576791196,0,NULL);
INSERT INTO "tasks" VALUES(5,'01a1f201f4593be85fbe2ce39dbca94ded1f8f35e84b','reports','["local"]','report','1',1795061576793596,NULL,NULL,NULL,0,NULL,'{"attempts": 3, "first": 1000000, "factor": 2.0, "most": 300000000, "jitter": 0.5, "on_interrupt": "retry"}',86400000000,NULL,1795061576796600,'running',NULL,5,1,0,1795061576793596,'laptop:25837:19e5f6b0:direct',1795061578793596,0,0,0,5,2.0,4.0,'half',0,NULL,NULL,1,NULL,NULL,NULL,NULL);
INSERT INTO "tasks" VALUES(6,'01a1f201f48f79f0125cfd391d8d1fca6d9208c92e25','reports','["local"]','queued','1',1795061576847628,NULL,NULL,NULL,0,NULL,'{"attempts": 3, "first": 1000000, "factor": 2.0, "most": 300000000, "jitter": 0.5, "on_interrupt": "retry"}',86400000000,NULL,1795061576847628,'running',NULL,2,1,0,1795061576847628,'laptop:25837:19e5f6b0:direct',1795061578847628,0,0,0,2,NULL,NULL,NULL,0,NULL,NULL,1,NULL,NULL,NULL,NULL);
INSERT INTO "tasks" VALUES(7,'01a1f201f49071664a8bcf516371ccf31c9d4616f5a8','reports','["local"]','queued','1',1795061576848492,NULL,NULL,NULL,0,NULL,'{"attempts": 3, "first": 1000000, "factor": 2.0, "most": 300000000, "jitter": 0.5, "on_interrupt": "retry"}',86400000000,NULL,1795061576848492,'queued',NULL,1,0,0,NULL,NULL,NULL,0,0,0,1,NULL,NULL,NULL,0,NULL,NULL,1,NULL,NULL,NULL,NULL);
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
CREATE INDEX tasks_of_owner ON tasks (namespace, owner, created_at, id);
CREATE INDEX tasks_of_namespace ON tasks (namespace, created_at, id);
CREATE INDEX tasks_by_creation ON tasks (created_at, id);
CREATE INDEX tasks_of_parent ON tasks (parent_id, created_at, id) WHERE parent_id IS NOT NULL;
CREATE UNIQUE INDEX tasks_by_key ON tasks (namespace, owner, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX tasks_leased ON tasks (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX tasks_with_deadline ON tasks (deadline_at) WHERE deadline_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX tasks_expiring ON tasks (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX tasks_live ON tasks (namespace, owner) WHERE finished_at IS NULL;
CREATE INDEX tasks_in_line ON tasks (namespace, priority DESC, turn, created_at, id, tool, tool_version)
WHERE phase = 'queued';
CREATE INDEX tasks_by_turn ON tasks (namespace, owner, priority, fence > 0, turn) WHERE phase = 'queued';
CREATE INDEX tasks_of_tool ON tasks (namespace, tool, tool_version, priority, turn) WHERE phase = 'queued';
CREATE INDEX tasks_due ON tasks (namespace, due_at, id, tool, tool_version)
WHERE phase = 'parked' AND due_at IS NOT NULL;
CREATE INDEX tasks_of_state ON tasks (namespace, tool, state, created_at, id) WHERE state IS NOT NULL;
CREATE INDEX tasks_of_subject ON tasks (namespace, subject, created_at, id) WHERE subject IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('changes',18);
COMMIT;
PRAGMA application_id = 1918986606;
PRAGMA user_version = 5;
