"""Workers behind a broker: Celery wakes them, on any number of hosts."""
