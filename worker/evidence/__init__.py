"""Evidence that every run gives about itself, so that it need not be trusted: lanes, counted rows, and a second
gradient."""
