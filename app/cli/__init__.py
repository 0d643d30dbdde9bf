"""Commands of the server, available in `lethe` if the server is installed (`lethe_server`).

Parts of the service are imported by the commands that need them, so that other commands start quickly.
"""
