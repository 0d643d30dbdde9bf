"""Bodies of calls about tables and trainers, for tests of all routes."""

from typing import Any

TABLE = {"name": "people", "subject_column": "person"}
FILES = {"file": ("people.csv", b"person,name\nt0,n0\nt1,n1\n")}


def trainer(table_id: str, artefact: str = "model.txt", **given: Any) -> dict[str, Any]:
    """Return the body of a call that registers a trainer whose artefact is a constant."""
    source = f"open('artefacts/{artefact}', 'w').write('1'); open('metrics.json', 'w').write('{{\"accuracy\": 0.5}}')"
    body = {"name": "constant", "table_id": table_id, "command": ["python", "train.py"], "files": {"train.py": source}}
    return body | {"lock": "", "artefacts": [artefact]} | given


GATE = {"metrics": ["accuracy"], "metric": "accuracy", "min_metric": 0.9}
