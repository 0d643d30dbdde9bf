"""Attacks on what is called unlearning, each on the mechanism it breaks and on ours; `__main__.py` says which."""
