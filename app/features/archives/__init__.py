"""Backups that respect erasure: people forgotten since a backup are forgotten again before it is served."""
