"""Ledgers of models trained elsewhere with differential privacy."""
