"""A real MLflow store (SQLite and a folder) that follows a real gateway: it contains exactly what Lethe serves."""

import http.server
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from safetensors.numpy import load

from app.config import Settings
from app.db.tables import DeletionRequest
from app.installations import Installation
from app.keys import Keys
from benchmarks.vectors import encode_vectors
from lethe import Client, verification
from lethe.errors import CertificateInvalid
from lethe.features.handover.mlflow import CopiesLeftBehind, NameTaken, NotServable, Registered, register
from lethe.features.networks.tangents.graph import Graph
from lethe.features.networks.tangents.model import Tangent, scores
from lethe.proof.network import Linearisation
from tests.conftest import npz
from tests.features.networks import nets
from tests.features.networks.networks import exported

# MLflow itself raises warnings.
pytestmark = pytest.mark.filterwarnings("ignore")

Work = Callable[[], int]
ALIAS = "models:/churn@certified"


@pytest.fixture(scope="module")
def mlflow_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the path of a database with MLflow's tables, which tests copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DO_NOT_TRACK", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
        MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
        yield path


class Store:
    """The state of an MLflow server: its database, and the folder with all artifacts."""

    def __init__(self, uri: str, artifacts: str | None) -> None:
        from mlflow import MlflowClient

        self.uri = uri
        self.client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
        self.client.create_experiment("lethe", artifact_location=artifacts)

    def load(self, uri: str) -> Any:
        import mlflow

        mlflow.set_tracking_uri(self.uri)
        mlflow.set_registry_uri(self.uri)
        return mlflow.pyfunc.load_model(uri)

    def log_again(self, name: str, scratch: Path) -> str:
        """Log the certified model as a logged model of MLflow 3, in the folder `models/m-...`; return its id."""
        version = self.client.get_model_version_by_alias(name, "certified")
        scratch.mkdir()
        [folder] = [Path(self.client.download_artifacts(version.run_id, "model", str(scratch)))]
        logged = self.client.create_logged_model(
            self.client.get_experiment_by_name("lethe").experiment_id, name="again"
        )
        self.client.log_model_artifacts(logged.model_id, str(folder))
        return str(logged.model_id)

    def versions(self) -> dict[str, str]:
        """Return Lethe's version number for each registered version."""
        return {str(v.version): v.tags["lethe.version"] for v in self.client.search_model_versions("name = 'churn'")}


@pytest.fixture
def store(mlflow_once: Path, tmp_path: Path) -> Store:
    shutil.copyfile(mlflow_once, tmp_path / "mlflow.db")
    return Store(f"sqlite:///{tmp_path}/mlflow.db", (tmp_path / "artifacts").as_uri())


@pytest.fixture
def model_id(client: Client, people: Path, work: Work) -> str:
    dataset = client.datasets.upload(people, classes=["0", "1"])
    model = client.models.create(name="churn", dataset_id=dataset.id, l2=0.05)
    work()
    return model.id


def follow(client: Client, store: Store, model_id: str, **given: Any) -> Registered:
    return register(client, model_id, name="churn", tracking_uri=store.uri, **given)


def forget(client: Client, work: Work, subject_id: str) -> str:
    request = client.deletion_requests.create(subject_id=subject_id)
    work()
    return request.id


def weights_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def test_the_registry_follows_the_served_version(
    client: Client, store: Store, model_id: str, work: Work, tmp_path: Path
) -> None:
    """The first version can be loaded by its alias and returns the same predictions as the gateway. After a person is
    forgotten, the alias points to the version without the person, which has its certificate, and the previous version
    is deleted from the registry and from disk."""
    first = follow(client, store, model_id)
    assert (first.lethe_version, first.certificate_ids, first.destroyed) == (1, (), ())
    old = weights_in(tmp_path / "artifacts")
    assert len(old) == 1
    before = old[0].read_bytes()
    records = np.random.default_rng(3).normal(size=(5, 3))
    loaded = store.load(ALIAS).predict(records)
    said = client.models.predictions(model_id, records=records.tolist())
    for mine, theirs in zip(loaded, said.predictions, strict=True):
        assert mine["label"] == theirs.label
        assert list(mine["probabilities"].values()) == pytest.approx(list(theirs.probabilities.values()))

    request_id = forget(client, work, "p1")
    second = follow(client, store, model_id)
    [certificate] = client.deletion_requests.certificates(request_id)
    assert (second.lethe_version, second.certificate_ids, second.destroyed) == (2, (certificate.id,), (1,))
    assert store.versions() == {second.version: "2"}
    served = store.client.get_model_version_by_alias("churn", "certified")
    tags = dict(served.tags)
    epsilon = float(tags.pop("lethe.epsilon"))
    verdict = verification.verify(certificate.jws, client.certificates.public_keys())
    assert epsilon == pytest.approx(next(g.epsilon for g in verdict.guarantees if g.notion == "unlearning"), rel=1e-5)
    assert tags == {
        "lethe.model_id": model_id,
        "lethe.version": "2",
        "lethe.weights_sha256": client.models.version(model_id, 2).weights_sha256,
        "lethe.certificate_ids": certificate.id,
        "lethe.request_ids": request_id,
    }
    [weights] = weights_in(tmp_path / "artifacts")
    assert weights.read_bytes() != before
    assert not any(before in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert store.load(ALIAS).predict(records) != loaded


def test_synchronising_again_changes_nothing(
    client: Client, store: Store, model_id: str, work: Work, tmp_path: Path
) -> None:
    """Weights are fetched once per version and deleted once, however often the registry is synchronised."""
    first = follow(client, store, model_id)
    assert follow(client, store, model_id) == first
    forget(client, work, "p1")
    second = follow(client, store, model_id)
    again = follow(client, store, model_id)
    assert (again.version, again.destroyed) == (second.version, ())
    assert len(weights_in(tmp_path / "artifacts")) == 1
    assert len(store.client.search_registered_models()) == 1


def test_an_alias_never_points_to_an_unverified_version(
    client: Client, store: Store, model_id: str, work: Work, tmp_path: Path
) -> None:
    """If a certificate does not verify with the given keys, the alias is removed instead of being moved to the new
    version. The retired version is deleted either way. With the issuer's keys, the alias points to the new version."""
    follow(client, store, model_id)
    forget(client, work, "p1")
    stranger = {"keys": [Keys(tmp_path / "keys").create().signing_key.as_dict(private=False)]}
    with pytest.raises(CertificateInvalid):
        follow(client, store, model_id, jwks=stranger)
    assert store.client.get_registered_model("churn").aliases == {}
    assert list(store.versions().values()) == ["2"]
    assert follow(client, store, model_id).lethe_version == 2
    assert list(store.client.get_registered_model("churn").aliases) == ["certified"]


def test_a_version_that_may_not_be_served_has_no_alias(
    client: Client, store: Store, installation: Installation, model_id: str, work: Work
) -> None:
    """While a request is overdue, the model has no alias. Once the person is forgotten, the alias points to the version
    without the person."""
    follow(client, store, model_id)
    request = client.deletion_requests.create(subject_id="p1")
    with installation.database.writing() as session:
        session.execute(sa.update(DeletionRequest).values(deadline=request.created_at))
    with pytest.raises(NotServable) as refusal:
        follow(client, store, model_id)
    assert refusal.value.code == "forgetting_overdue"
    assert store.client.get_registered_model("churn").aliases == {}
    work()
    assert follow(client, store, model_id).destroyed == (1,)
    assert store.client.get_model_version_by_alias("churn", "certified").tags["lethe.version"] == "2"


def test_copies_of_an_interrupted_call_are_deleted(
    client: Client, store: Store, model_id: str, work: Work, tmp_path: Path
) -> None:
    """Weights that were stored but never registered are deleted together with their retired version."""
    first = follow(client, store, model_id)
    store.client.delete_model_version("churn", first.version)
    assert len(weights_in(tmp_path / "artifacts")) == 1
    forget(client, work, "p1")
    assert follow(client, store, model_id).destroyed == (1,)
    assert len(weights_in(tmp_path / "artifacts")) == 1
    assert list(store.versions().values()) == ["2"]


def test_the_registered_model_of_another_model_is_unchanged(
    client: Client, store: Store, model_id: str, work: Work
) -> None:
    """A registered model that belongs to a different Lethe model is not changed."""
    store.client.create_registered_model("taken")
    with pytest.raises(NameTaken):
        register(client, model_id, name="taken", tracking_uri=store.uri)
    follow(client, store, model_id)
    other = client.models.create(name="other", dataset_id=client.models.get(model_id).dataset_id, l2=0.05)
    work()
    with pytest.raises(NameTaken):
        follow(client, store, other.id)
    assert list(store.versions().values()) == ["1"]


def test_records_keyed_by_column_name_are_accepted(
    client: Client, store: Store, settings: Settings, work: Work, tmp_path: Path
) -> None:
    """For a dataset with a schema, the registered model accepts data frames and lists of dicts, and returns the same
    predictions as the gateway."""
    import pandas

    table, columns = tmp_path / "t.csv", {"age": {"kind": "numeric", "min": 0, "max": 100}}
    table.write_text("age,income\n10,low\n20,low\n80,high\n90,high\n")
    schema = {"columns": columns | {"income": {"role": "label", "values": ["low", "high"]}}}
    dataset = client.datasets.upload(table, schema=schema)
    model = client.models.create(name="churn", dataset_id=dataset.id, l2=0.5, noise_scale=1e-3)
    work()
    follow(client, store, model.id)
    [expected] = client.models.predictions(model.id, records=[{"age": 5}]).predictions
    loaded = store.load(ALIAS)
    for records in ([{"age": 5}], pandas.DataFrame({"age": [5]})):
        [found] = loaded.predict(records)
        assert (found["label"], found["probabilities"]) == (expected.label, pytest.approx(expected.probabilities))


def test_a_tangent_model_includes_its_network(
    client: Client, store: Store, work: Work, people: Path, tmp_path: Path
) -> None:
    """A tangent model is loaded with its network, which is stored next to its weights. Its predicted probabilities
    match the scores computed from the weights and the network."""
    import torch

    with np.load(people) as arrays:
        rows = arrays["x"][:20]
    content = exported(torch.nn.Sequential(torch.nn.Linear(rows.shape[1], 1)), rows.shape[1])
    (tmp_path / "small.onnx").write_bytes(content)
    network = client.networks.upload(tmp_path / "small.onnx", licence="CC0-1.0", provenance="Drawn numbers.")
    dataset = client.datasets.upload(people, classes=["0", "1"])
    moved = {"network_id": network.id, "layers": ["0.weight", "0.bias"]}
    model = client.models.create(name="churn", dataset_id=dataset.id, l2=0.05, tangent=moved)
    work()
    follow(client, store, model.id)
    parameters = load(client.models.weights(model.id, 1))["parameters"]
    tangent = Tangent(Graph(content), Linearisation(layers=("0.weight", "0.bias")), num_scores=1)
    expected = scores(tangent, parameters, encode_vectors(rows))[:, 0]
    found = store.load(ALIAS).predict(rows)
    chances = np.array([one["probabilities"]["1"] for one in found])
    np.testing.assert_allclose(np.log(chances / (1 - chances)), expected, rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="Expected vectors"):
        store.load(ALIAS).predict(rows[:, :2])


def test_a_model_of_features_includes_its_network(client: Client, store: Store, work: Work, tmp_path: Path) -> None:
    """A registered model on a network's features is stored with its network and returns the same predictions as the
    gateway for any batch length. With a different network it fails to load."""
    (tmp_path / "small.onnx").write_bytes(nets.linear())
    (tmp_path / "people.npz").write_bytes(npz(features=nets.WIDTH, classes=3))
    network = client.networks.upload(tmp_path / "small.onnx", licence="CC0-1.0", provenance="Drawn numbers.")
    dataset = client.datasets.upload(tmp_path / "people.npz", classes=["a", "b", "c"], network_id=network.id)
    model = client.models.create(name="churn", dataset_id=dataset.id, l2=0.05)
    work()
    follow(client, store, model.id)
    records = np.random.default_rng(5).normal(size=(40, nets.WIDTH))
    said = client.models.predictions(model.id, records=records.tolist()).predictions
    loaded = store.load(ALIAS)
    for rows in (records, records[37:]):
        expected = [(one.label, one.probabilities) for one in said[-len(rows) :]]
        assert [(one["label"], one["probabilities"]) for one in loaded.predict(rows)] == expected
    with pytest.raises(ValueError, match="Expected vectors of 6"):
        loaded.predict(records[:, :2])
    [shipped] = (tmp_path / "artifacts").rglob("network.onnx")
    shipped.write_bytes(nets.linear(2.0))
    with pytest.raises(ValueError, match=f"not the one of SHA-256 {network.sha256}"):
        store.load(ALIAS)


class Keeping(http.server.BaseHTTPRequestHandler):
    """An artifact server that stores what it is sent and deletes nothing."""

    folder: Path

    def do_PUT(self) -> None:
        place = self.folder / self.path.split("/artifacts/", 1)[1]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self._say(200, b"{}")

    def do_GET(self) -> None:
        path, _, asked = self.path.partition("?path=")
        if not asked:
            return self._say(200, (self.folder / path.split("/artifacts/", 1)[1]).read_bytes())
        found = [
            {"path": path.name, "is_dir": path.is_dir(), "file_size": 1}
            for path in (self.folder / asked.replace("%2F", "/")).glob("*")
        ]
        return self._say(200, json.dumps({"files": found}).encode())

    def do_DELETE(self) -> None:
        self._say(405, b"{}")

    def _say(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def keeping(mlflow_once: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copyfile(mlflow_once, tmp_path / "mlflow.db")
    handler = type("Handler", (Keeping,), {"folder": tmp_path / "kept"})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_address[1]}/api/2.0/mlflow-artifacts/artifacts/lethe"
        yield Store(f"sqlite:///{tmp_path}/mlflow.db", place)
        server.shutdown()


@pytest.mark.soak
def test_a_store_that_keeps_weights_is_reported(
    client: Client, keeping: Store, model_id: str, work: Work, tmp_path: Path
) -> None:
    """If the store does not delete the weights of a retired version or its logged models, each call reports this and
    the run is tagged. Lethe lists the copy as replaced until it is deleted manually."""
    follow(client, keeping, model_id)
    logged = keeping.log_again("churn", tmp_path / "again")
    forget(client, work, "p1")
    for _ in range(2):
        with pytest.raises(CopiesLeftBehind, match=f"models:/{logged}"):
            follow(client, keeping, model_id)
    [copy] = client.models.exports(model_id, version=1)
    assert (copy.kind, copy.destroyed, copy.replaced_by) == ("mlflow", None, 2)
    assert list(keeping.versions().values()) == ["2"]
    assert keeping.client.get_model_version_by_alias("churn", "certified").tags["lethe.version"] == "2"
    experiment = keeping.client.get_experiment_by_name("lethe")
    [run] = keeping.client.search_runs([experiment.experiment_id], "tags.`lethe.version` = '1'")
    assert run.data.tags["lethe.weights"] == "left_behind"
    [kept] = [path for path in weights_in(tmp_path / "kept") if run.info.run_id in str(path)]
    shutil.rmtree(next(folder for folder in kept.parents if folder.name == "model"))
    with pytest.raises(CopiesLeftBehind):
        follow(client, keeping, model_id)
    shutil.rmtree(tmp_path / "kept" / "lethe" / "models" / logged)
    assert follow(client, keeping, model_id).destroyed == (1,)
    [copy] = client.models.exports(model_id, version=1)
    assert (copy.place, copy.destroyed, copy.replaced_by) == (f"run {run.info.run_id}", "listed", None)


@pytest.fixture
def proxied(mlflow_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Start MLflow's own server, which is the only process with access to its artifacts (`mlflow-artifacts:`)."""
    from werkzeug.serving import make_server

    shutil.copyfile(mlflow_once, tmp_path / "mlflow.db")
    monkeypatch.setenv("_MLFLOW_SERVER_FILE_STORE", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", "mlflow-artifacts:/")
    monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_DESTINATION", str(tmp_path / "behind"))
    monkeypatch.setenv("_MLFLOW_SERVER_SERVE_ARTIFACTS", "true")
    from mlflow.server import app

    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Store(f"http://127.0.0.1:{server.server_port}", None)
    server.shutdown()


@pytest.mark.soak
def test_logged_models_behind_a_proxy_are_searched(
    client: Client, proxied: Store, model_id: str, work: Work, tmp_path: Path
) -> None:
    """Behind MLflow's artifact proxy, the weights of a retired version are deleted from their run and from the folder
    of every logged model that contains them, registered or deleted. Folders with other weights stay. Lethe lists the
    copy as destroyed."""
    follow(client, proxied, model_id)
    assert proxied.client.get_experiment_by_name("lethe").artifact_location.startswith("mlflow-artifacts:")
    [old] = weights_in(tmp_path / "behind")
    before = old.read_bytes()
    registered, deleted, other = (proxied.log_again("churn", tmp_path / f"again {number}") for number in range(3))
    proxied.client.create_registered_model("elsewhere")
    proxied.client.create_model_version("elsewhere", f"models:/{registered}", model_id=registered)
    proxied.client.delete_logged_model(deleted)
    [foreign] = [path for path in weights_in(tmp_path / "behind") if other in str(path)]
    foreign.write_bytes(b"the weights of somebody else's model")
    assert sum(path.read_bytes() == before for path in weights_in(tmp_path / "behind")) == 3

    forget(client, work, "p1")
    assert follow(client, proxied, model_id).destroyed == (1,)
    assert not any(before in path.read_bytes() for path in (tmp_path / "behind").rglob("*") if path.is_file())
    assert foreign.exists()
    assert proxied.client.search_model_versions("name = 'elsewhere'") == []
    [copy] = client.models.exports(model_id, version=1)
    assert (copy.kind, copy.destroyed) == ("mlflow", "listed")
    [present] = client.models.exports(model_id, version=2)
    assert (present.kind, present.destroyed) == ("mlflow", None)
