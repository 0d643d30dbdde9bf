"""Access: the permissions of callers, and the same answer to a question asked twice."""
