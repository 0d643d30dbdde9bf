"""Backups that cannot bring anybody back: what was forgotten since is forgotten again before anything is served."""
