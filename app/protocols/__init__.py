"""The protocols of others by which requests come in: their messages, their words for a status, their signatures."""
