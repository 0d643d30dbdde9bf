"""Dashboard under /admin, and casework on requests: assignment, notes, attachments and replies."""
