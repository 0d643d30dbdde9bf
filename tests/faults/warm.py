"""Warm-up of a service, done once in the process that services of tests are forked from.

Each service imports its features, configures its mappers and compiles its statements when it starts, which is most of
the time that a short life takes; forked services inherit the result."""

import gc
import json
import tempfile
import warnings
from pathlib import Path

from app import installations
from app.config import Settings
from app.journal import verification
from app.main import create_app
from app.operations import periodic_jobs
from tests import statements
from worker import chain_process, runner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette's warning about httpx
    from fastapi.testclient import TestClient


assert chain_process, "imported for the servers that fork the processes of runs"


def _lap(folder: Path) -> None:
    """Serve, accept a request and poll for work. No run is executed, because all services would share its process."""
    settings = Settings(data_dir=folder / "data")
    installations.set_up(settings)
    admin_key = settings.resolved_admin_key_file().read_text().strip()
    with TestClient(create_app(settings)) as gateway:
        gateway.headers["Authorization"] = f"Bearer {admin_key}"
        files = {"file": ("people.csv", "person,x,y\na,0,n\nb,1,p\n")}
        columns = {"person": {"role": "subject"}, "x": {"kind": "numeric", "min": 0, "max": 1}}
        columns |= {"y": {"role": "label", "values": ["n", "p"]}}
        form = {"name": "people", "schema": json.dumps({"columns": columns})}
        gateway.post("/v1/datasets", data=form, files=files).raise_for_status()
        gateway.post("/v1/deletion-requests", json={"subject_id": "nobody"}).raise_for_status()
        for path in ("runs", "models", "deletion-requests"):
            gateway.get(f"/v1/{path}").raise_for_status()
    with installations.opened(settings) as installation:
        periodic_jobs.destroy_orphans(installation)
        verification.verify_at_start(installation)
        periodic_jobs.PeriodicJobs(settings).do_due(installation)
        runner.run_next(installation, worker="warm")


statements.share()
with tempfile.TemporaryDirectory() as folder:
    _lap(Path(folder))
# Each service collects garbage when it starts and when calls pause. Without this it would visit the million objects
# that it inherits from here, and thereby copy their memory.
gc.collect()
gc.freeze()
