"""Dashboard below /admin, and case work on requests: assignment, notes, attachments and replies."""
