"""Evidence that every run gives about itself, so that nobody has to believe it: lanes, counted rows, a second
gradient."""
