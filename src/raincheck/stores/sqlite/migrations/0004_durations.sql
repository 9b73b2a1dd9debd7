-- The duration histogram of each tool. Durations are measured, so an older file starts with none.
CREATE TABLE durations (
    namespace TEXT NOT NULL,
    tool TEXT NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (namespace, tool)
) STRICT, WITHOUT ROWID;
