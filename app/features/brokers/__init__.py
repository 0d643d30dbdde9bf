"""Workers behind a broker are woken by empty Celery messages."""
