"""`raincheck demo`: three kinds of callers, one tool, and a server that is killed while it works."""
