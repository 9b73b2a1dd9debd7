"""A fuzzer of everything that a caller can send, over HTTP, stdio and a Unix socket."""
