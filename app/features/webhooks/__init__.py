"""Webhooks: signed notifications to a caller's server about the caller's requests, retried until delivered."""
