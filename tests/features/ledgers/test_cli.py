"""The commands `lethe dp-model` with a live gateway and worker, from a ledger in a file to a verified bundle."""

import json
from pathlib import Path

from app.config import Settings
from tests.command_line import Lethe
from tests.faults import processes
from tests.features.ledgers.conftest import LEDGER, moment

TERMS = ("--delta", "1e-5", "--max-rows-per-person", "2", "--budget-epsilon", "0.6", "--trained-from")


def test_a_ledger_is_registered_spent_renewed_and_retired(
    settings: Settings, admin_key: str, lethe: Lethe, tmp_path: Path
) -> None:
    """A model is registered with a ledger from a file, and the list of models shows that the ledger's budget is spent.
    Once the ledger is renewed, the waiting request proceeds and its bundle verifies offline. A retired model is listed
    as retired, and a malformed ledger is refused with exit code 1."""
    file = tmp_path / "ledger.json"
    file.write_text(json.dumps(LEDGER))
    with processes.gateway(settings) as (_, address), processes.worker(settings):
        at = ("--url", address, "--key", admin_key)
        model = lethe("dp-model", "create", f"@{file}", "Ranker", *TERMS, moment(hours=1), *at).json
        assert (model["epsilon"], model["budget_rows"], model["version"]) == (0.576, 2, 1)
        assert lethe("dp-model", "show", model["id"], *at).json == model
        for person in ("ada", "eve"):
            request = lethe("request", "submit", person, "--no-wait", *at).json["id"]
        listed = lethe("dp-model", "list", *at)
        assert " ".join(listed.out.split()) == f"{model['id']} epsilon 0.576 4 of 2 rows retraining due Ranker"

        renewed = lethe("dp-model", "renew", model["id"], f"@{file}", *TERMS, moment(), *at).json
        assert (renewed["version"], renewed["forgotten_rows"], renewed["waiting_requests"]) == (2, 0, 0)
        assert lethe("request", "wait", request, *at).json["status"] == "completed"
        bundle, jwks = tmp_path / "bundle.json", tmp_path / "jwks.json"
        bundle.write_text(lethe("request", "bundle", request, *at).out)
        jwks.write_text(lethe("certificate", "public-keys", *at).out)
        verified = lethe("certificate", "verify", bundle, "--jwks", jwks)
        assert verified.code == 0, verified.err
        assert f"declared            {model['id']}  Ranker" in verified.out

        file.write_text(json.dumps({"format": "pickle"}))
        refused = lethe("dp-model", "create", f"@{file}", "Other", *TERMS, moment(hours=1), *at)
        assert (refused.code, refused.out) == (1, "")
        assert "ledger" in refused.err
        assert lethe("dp-model", "retire", model["id"], *at).code == 0
        assert "retired" in lethe("dp-model", "list", *at).out
