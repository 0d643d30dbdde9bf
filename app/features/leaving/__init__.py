"""Reasons for leaving: answers that are randomised on the client, and counted rather than stored."""
