"""Reasons for leaving, as far as people like to say: answers that they randomised themselves, counted and not kept."""
