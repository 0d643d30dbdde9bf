"""Reasons for leaving: answers that are randomised on the client, and counted instead of stored."""
