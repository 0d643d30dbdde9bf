"""Commands of the server, in `lethe` if it is installed (`lethe_server`). Each imports what it needs when called."""
