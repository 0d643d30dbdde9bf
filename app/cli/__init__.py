"""Commands that `lethe` has if the server is installed (`lethe_server`). Each imports what it needs when called."""
