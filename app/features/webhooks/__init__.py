"""Webhooks: signed notifications of a caller's server about its requests, retried until delivered."""
