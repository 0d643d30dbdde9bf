"""Workers behind a broker, woken by empty Celery messages."""
