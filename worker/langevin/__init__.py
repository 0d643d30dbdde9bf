"""Langevin unlearning: a chain of projected noisy gradient steps on the rows that remain."""
