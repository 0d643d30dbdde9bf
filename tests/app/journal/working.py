from app.installations import Installation
from worker import runner


def work_at(installation: Installation) -> int:
    runs = 0
    while runner.run_next(installation, worker="test"):
        runs += 1
    return runs
