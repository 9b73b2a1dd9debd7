-- The latest time of this file, so that its time does not run backwards after a restart.
CREATE TABLE clock (
    pk INTEGER PRIMARY KEY CHECK (pk = 1),
    latest INTEGER NOT NULL
) STRICT;
