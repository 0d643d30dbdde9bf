"""Backups that respect erasure: people forgotten after a backup was taken are forgotten again before it is served."""
