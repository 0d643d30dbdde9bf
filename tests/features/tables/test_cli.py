"""Commands that preview tables locally and send nothing to a gateway."""

import hashlib
import json
from pathlib import Path

import pytest
from sklearn.datasets import load_wine

from lethe.features.tables import cli as plans
from tests.command_line import Lethe, refused
from tests.features.networks import nets
from tests.features.tables.encoded import SCHEMA, table


@pytest.mark.slow
def test_a_schema_is_proposed_and_previewed(lethe: Lethe, tmp_path: Path) -> None:
    """`lethe dataset infer` proposes a schema only for columns that the user confirms to be public. `lethe dataset
    preview` uses the schema to print a preview as a table or as JSON."""
    path, schema = tmp_path / "wine.csv", tmp_path / "schema.json"
    load_wine(as_frame=True).frame.to_csv(path, index=False)
    asked = ("dataset", "infer", str(path), "--label", "target")
    refused(lethe(*asked), "input_invalid")
    schema.write_text(lethe(*asked, "--public").out)
    tried = ("dataset", "preview", str(path), "--schema", str(schema), "--epsilon", "2", "--l2", "0.01")
    shown = lethe(*tried)
    assert (shown.code, shown.err) == (0, "")
    assert "178 rows, 13 features; on 44 held-out rows, the best constant prediction has the accuracy" in shown.out
    assert "norms of rows before scaling to 1: 90 % from" in shown.out
    assert "an encoded row of median norm: alcalinity_of_ash[0] " in shown.out
    assert ", and 1 more; bias 0." in shown.out
    assert "scikit-learn, logistic regression: 97." in shown.out
    [plan] = lethe(*tried, "--json").json["plans"]
    assert (plan["epsilon"], plan["l2"]) == (2.0, 0.01)
    planned = lethe("model", "plan", str(path), *tried[3:], "--epsilon", "8")
    assert (planned.code, planned.err) == (0, "")
    assert "Bars are from" in planned.out
    assert "█" * 12 in planned.out
    lost = lethe("model", "plan", str(path), *tried[3:], "--metric", "log_loss")
    assert "log loss" in " ".join(lost.out.split())
    assert ": less is better." in lost.out
    refused(lethe("model", "plan", str(path), *tried[3:], "--metric", "r_squared"), "precondition_failed")
    refused(lethe("model", "plan", str(path), *tried[3:], "--second-moment", "2"), "precondition_failed")
    refused(lethe("model", "plan", str(path)), "input_invalid")
    refused(lethe("model", "plan", "--dataset", "ds_1", "--epsilon", "1"), "input_invalid")


@pytest.mark.parametrize("values", [[0.5, 0.7], [0.01, 0.7], [-3.0, 0.7], [-3.0, -2.0]])
def test_bars_show_the_lowest_and_highest_values(values: list[float]) -> None:
    """The bar of the highest value is full, and the bar of the lowest value is short but visible, even for negative
    values."""
    low, high = plans._ends(values)
    assert plans.bar_of(max(values), low, high) == "█" * 12
    assert 1 <= len(plans.bar_of(min(values), low, high)) <= 2


@pytest.mark.slow
def test_a_schema_follows_the_stated_columns(lethe: Lethe, tmp_path: Path) -> None:
    """If the user states the range or values of every column, no column needs to be confirmed as public. A missing
    column or an invalid range is refused with a specific error, and ignored columns are reported."""
    path = tmp_path / "rows.csv"
    path.write_text("age,since,city,rent,who\n31,2020-01-02,Bonn,700,p1\n")
    asked = ("dataset", "infer", str(path), "--target", "rent", "--subject", "who", "--range", "rent=0..4000")
    stated = ("--range", "age=0..120", "--range", "since=2000-01-01..2030-01-01", "--values", "city=Bonn,Lyon")
    assert lethe(*asked, *stated).json["columns"] == {
        "rent": {"role": "target", "min": 0.0, "max": 4000.0, "outside": "clip"},
        "age": {"kind": "numeric", "min": 0.0, "max": 120.0, "outside": "clip"},
        "since": {"kind": "datetime", "min": "2000-01-01", "max": "2030-01-01", "outside": "clip"},
        "city": {"kind": "categorical", "values": ["Bonn", "Lyon"], "unknown": "null"},
        "who": {"role": "subject"},
    }
    refused(lethe(*asked, *stated[:4]), "input_invalid")
    for wrong in ("age", "age=9..1", "age=9", "age=a..b"):
        refused(lethe(*asked, "--range", wrong, "--public"), "input_invalid")
    shown = lethe(*asked, "--public")
    assert "warning: ignored: age, since, city" in shown.err


def test_an_invalid_schema_is_refused(lethe: Lethe, tmp_path: Path) -> None:
    """A schema that is not valid JSON is refused with a one-line error."""
    (tmp_path / "rows.csv").write_text("x,y\n1,a\n")
    (tmp_path / "schema.json").write_text("{")
    tried = ("dataset", "preview", str(tmp_path / "rows.csv"), "--schema", str(tmp_path / "schema.json"))
    refused(lethe(*tried), "schema_invalid")


@pytest.mark.slow
def test_dataset_and_model_commands_accept_a_network(lethe: Lethe, tmp_path: Path) -> None:
    """The commands `lethe dataset preview` and `lethe model plan` accept a network's file and apply the limits set in a
    gateway's environment variables. A network's id is not accepted in place of a file."""
    network = tmp_path / "net.onnx"
    network.write_bytes(nets.linear())
    table().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    asked = (tmp_path / "rows.csv", "--schema", tmp_path / "schema.json", "--epsilon", "4", "--l2", "0.01")
    shown = lethe("dataset", "preview", *asked, "--network", network)
    assert (shown.code, shown.err) == (0, "")
    assert f"features of the network of SHA-256 {hashlib.sha256(nets.linear()).hexdigest()}\n" in shown.out
    [plan] = lethe("model", "plan", *asked, "--network", network, "--json").json["plans"]
    assert plan["accuracy_without_noise"] > 0.85
    refused(lethe("dataset", "preview", *asked, "--network", "net_5c1e"), "input_invalid")
    refused(lethe("model", "plan", *asked, "--network", network, "--network-sha256", "0"), "network_invalid")
    refused(lethe("model", "plan", *asked, "--network", network, "--layers", "w"), "precondition_failed")
    refused(lethe("model", "plan", *asked, "--network-sha256", "0"), "precondition_failed")
    refused(lethe("model", "plan", *asked, "--network", network, "--rank", "2"), "input_invalid")
    refused(lethe("model", "plan", "--dataset", "ds_1", "--network", network), "input_invalid")
