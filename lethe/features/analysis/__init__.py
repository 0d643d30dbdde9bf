"""Mathematics that only the theorems of the calculator use."""
