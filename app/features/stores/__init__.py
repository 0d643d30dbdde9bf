"""Reports of searches in the stores of systems, as evidence of their tasks."""
