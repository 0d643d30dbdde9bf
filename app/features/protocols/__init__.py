"""External protocols for deletion requests: their messages, statuses and signatures."""
