"""Models that were trained elsewhere with differential privacy: ledgers, budgets, and requests that wait for them."""
