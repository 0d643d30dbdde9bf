"""Rows of people: encoded in sealed blocks, with records that name the person of each row."""
