"""The command line, by itself and beside a live gateway and a live worker."""

from tests.command_line import certified, lethe, live, people

__all__ = ["certified", "lethe", "live", "people"]
