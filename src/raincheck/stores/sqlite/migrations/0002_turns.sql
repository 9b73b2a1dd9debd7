-- Queued tasks have turns. Tasks that are queued already get them in the order of their creation, as if nothing had been served
-- yet.
ALTER TABLE tasks ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
UPDATE tasks SET turn = line.turn
FROM (
    SELECT pk, row_number() OVER (PARTITION BY namespace, owner, priority, fence > 0 ORDER BY created_at, id) AS turn
    FROM tasks WHERE phase = 'queued'
) AS line
WHERE tasks.pk = line.pk;

CREATE TABLE lines (
    namespace TEXT NOT NULL,
    priority INTEGER NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (namespace, priority)
) STRICT, WITHOUT ROWID;

DROP INDEX tasks_queued;
DROP INDEX tasks_due;
CREATE INDEX tasks_in_line ON tasks (namespace, priority DESC, turn, created_at, id, tool, tool_version)
WHERE phase = 'queued';
CREATE INDEX tasks_by_turn ON tasks (namespace, owner, priority, fence > 0, turn) WHERE phase = 'queued';
CREATE INDEX tasks_of_tool ON tasks (namespace, tool, tool_version, priority, turn) WHERE phase = 'queued';
CREATE INDEX tasks_due ON tasks (namespace, due_at, id, tool, tool_version)
WHERE phase = 'parked' AND due_at IS NOT NULL;
