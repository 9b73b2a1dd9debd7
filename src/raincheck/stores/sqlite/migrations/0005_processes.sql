-- Tasks that are workflow instances have states, and may have a subject. Older tasks are no instances.
ALTER TABLE tasks ADD COLUMN state TEXT;
ALTER TABLE tasks ADD COLUMN state_since INTEGER;
ALTER TABLE tasks ADD COLUMN state_number INTEGER;
ALTER TABLE tasks ADD COLUMN subject TEXT;
CREATE INDEX tasks_of_state ON tasks (namespace, tool, state, created_at, id) WHERE state IS NOT NULL;
CREATE INDEX tasks_of_subject ON tasks (namespace, subject, created_at, id) WHERE subject IS NOT NULL;

-- Definitions of tools from workflow files, so that their tasks can continue when the file has changed.
CREATE TABLE definitions (
    namespace TEXT NOT NULL,
    tool TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (namespace, tool, tool_version)
) STRICT, WITHOUT ROWID;
