-- How long the tasks of each tool take. It is measured, so an older file begins with nothing.
CREATE TABLE durations (
    namespace TEXT NOT NULL,
    tool TEXT NOT NULL,
    counts TEXT NOT NULL,
    PRIMARY KEY (namespace, tool)
) STRICT, WITHOUT ROWID;
