"""`python -m worker NAME [--deletions-only]`: embedded worker that `lethe up` starts and supervises."""

import gc
import sys


def main() -> None:
    """Run the worker. As in a gateway, objects created before it is ready are never garbage-collected."""
    gc.disable()
    from app.config import Settings
    from lethe.contract.problems import Problem
    from worker import embedded

    try:
        embedded.main(Settings(), name=sys.argv[1], deletions_only="--deletions-only" in sys.argv[2:])
    except Problem as error:
        sys.exit(f"error: {error.code}: {error.detail}")


main()
