"""Models trained elsewhere with differential privacy: their ledgers and budgets, and the requests waiting for them."""
