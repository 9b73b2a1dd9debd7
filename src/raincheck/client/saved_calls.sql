-- The task book. One table: a slip as JSON, found by its task and its server.

-- name: read_mark
-- What says in the file's header that it is a book.
PRAGMA application_id;

-- name: write_mark
-- The four letters of `slip`.
PRAGMA application_id = 0x736C6970;

-- name: begin
-- As a writer, so that of two who make a book the second finds it made.
BEGIN IMMEDIATE;

-- name: list_tables
-- Whatever is in a file that has no mark.
SELECT name FROM sqlite_master WHERE type = 'table';

-- name: create_slips
-- It may be there already, in a book from before there was a mark.
CREATE TABLE IF NOT EXISTS slips (task_id TEXT, server TEXT, slip TEXT, PRIMARY KEY (task_id, server));

-- name: put
-- One that is there already is written over.
INSERT OR REPLACE INTO slips VALUES (:task_id, :server, :slip);

-- name: remove
-- Another server may have a task of the same id.
DELETE FROM slips WHERE task_id = :task_id AND server = :server;

-- name: list_slips
-- Of one server or, with NULL, of all; the oldest first.
SELECT slip FROM slips WHERE server = coalesce(:server, server) ORDER BY rowid;
