-- Keys that servers sign and hash with. Each is made when it is first asked for, so an older file begins with none.
CREATE TABLE secrets (
    name TEXT NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL CHECK (length(bytes) = 32)
) STRICT, WITHOUT ROWID;
