"""Rows of people: encoded, in blocks that are sealed, and the records that say whose each of them is."""
