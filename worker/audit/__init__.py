"""What every run shows about itself, so that nobody has to believe it: lanes, counted rows, a second gradient."""
