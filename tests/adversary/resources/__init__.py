"""An attack on what a server can run out of: connections, file descriptors, memory and its callers' quotas."""
