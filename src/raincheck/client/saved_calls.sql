-- The file of saved calls. One table: a task reference as JSON, found by its task and its server.

-- name: read_mark
-- The mark in the file's header: zero unless the file is one of saved calls.
PRAGMA application_id;

-- name: write_mark
-- The four letters of `slip`.
PRAGMA application_id = 0x736C6970;

-- name: begin
-- As a writer, so that the second of two processes that create the file finds it created.
BEGIN IMMEDIATE;

-- name: list_tables
-- The tables of a file that has no mark.
SELECT name FROM sqlite_master WHERE type = 'table';

-- name: create_slips
-- The table may exist already, in a file that was made before there was a mark.
CREATE TABLE IF NOT EXISTS slips (task_id TEXT, server TEXT, slip TEXT, PRIMARY KEY (task_id, server));

-- name: put
-- Replace the reference if it exists already.
INSERT OR REPLACE INTO slips VALUES (:task_id, :server, :slip);

-- name: remove
-- Another server may have a task with the same id.
DELETE FROM slips WHERE task_id = :task_id AND server = :server;

-- name: list_slips
-- Those of one server or, with NULL, of all servers; the oldest first.
SELECT slip FROM slips WHERE server = coalesce(:server, server) ORDER BY rowid;
