"""Commands that `lethe` has if the server (`lethe_server`) is installed. Each imports what it needs when called."""
