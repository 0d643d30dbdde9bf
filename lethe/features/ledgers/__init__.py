"""Ledgers of models that were trained elsewhere with differential privacy."""
