"""Mathematics used only by the calculator's theorems."""
