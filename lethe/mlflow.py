"""The live version of a model in an MLflow registry, and none before it: `register(client, model_id, name=...)`.

MLflow keeps the artifacts of what is deleted there. What is registered here is deleted with them as soon as Lethe has
retired the version: the weights in the registry are one more copy that carries people forgotten since.
"""

import contextlib
import hashlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe import mlflow_pyfunc, verification
from lethe.client import Client
from lethe.contract.models import ModelOut, VersionOut
from lethe.contract.networks import NetworkOut
from lethe.contract.problems import NetworkUnknown
from lethe.errors import CertificateInvalid, Conflict, Problem
from lethe.network_files import network_of

if TYPE_CHECKING:  # it takes seconds to import, and few need it
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

_FOLDER = "model"
_CODE = "lethe_served"
_SERVED = (
    "contract/problems/*.py",
    "contract/sets.py",
    "contract/spelling.py",
    "encoding/*.py",
    "proof/errors.py",
    "proof/losses.py",
    "proof/mechanism.py",
    "proof/network.py",
    "tangents/*.py",
    "mlflow_pyfunc.py",
)
"""The modules that travel inside a model."""
_WEIGHTS = "lethe.weights"
"""The tag of a run: `present`, `destroyed`, or `left_behind` where the artifact store would not let go of them."""


class NotServable(Conflict):
    """Lethe says that the live version may not be served now; `code` is why."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class NameTaken(Conflict):
    """The registered model is of another model."""

    code = "name_taken"


class NameUnusable(Conflict):
    """MLflow could not be asked about the name."""

    code = "name_unusable"


class CopiesLeftBehind(Problem):
    """Weights of retired versions are still in the artifact store, which would not delete them: delete them there, by
    hand. Their runs have the tag `lethe.weights` = `left_behind`."""

    code = "copies_left_behind"
    title = "Weights of retired versions are left"
    status = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The version that the alias points at now. `destroyed`: Lethe's numbers of the versions whose artifacts were
    deleted by this call."""

    name: str
    version: str
    lethe_version: int
    certificate_ids: tuple[str, ...]
    destroyed: tuple[int, ...]


def register(
    client: Client,
    model_id: str,
    *,
    name: str,
    alias: str = "certified",
    tracking_uri: str | None = None,
    experiment: str = "lethe",
    jwks: dict[str, Any] | None = None,
) -> Registered:
    """Register the live version under `name`, point `alias` at it once it is certified, and delete those before it.

    The alias moves when every certificate of the version verifies here, with `jwks` (default: the keys that the gateway
    publishes), and the gateway says that the version may be served; otherwise it is taken away. Doing it again changes
    nothing. The artifacts are
    those of runs in `experiment`; `tracking_uri` is MLflow's own default unless given. Needs a key with models:read and
    accounting:read, and `pip install 'lethe-sdk[mlflow]'`.

    Versions that Lethe has retired are deleted, whatever becomes of the live one. Raises `NotServable`,
    `CertificateInvalid`, `CopiesLeftBehind`, and any other `Problem`; `Conflict` if `name` is of another model.
    """
    model = client.models.get(model_id)
    registry = _Registry(model, name=name, tracking_uri=tracking_uri, experiment=experiment)
    destroyed: list[int] = []
    try:
        if model.live_version is None:
            raise NotServable("not_live", f"Model {model_id} has no version yet.")
        version = client.models.version(model_id, model.live_version)
        if version.held:
            raise NotServable("held", f"Version {version.number} misses the quality gate of its model.")
        found = registry.version_of(version) or registry.add(version, _content(client, model, version))
        proofs = _proofs(client, version, jwks=jwks)
        serving = client.models.serving(model_id, weights_sha256=version.weights_sha256)
        if not serving.may_serve:
            raise NotServable(serving.reason or "not_live", f"Version {version.number} may not be served now.")
        registry.certify(found, proofs, alias=alias)
    except (NotServable, CertificateInvalid):
        registry.withdraw(alias)
        raise
    finally:
        destroyed = registry.destroy_retired()
    return Registered(
        name=name,
        version=str(found.version),
        lethe_version=version.number,
        certificate_ids=tuple(proofs.certificate_ids),
        destroyed=tuple(destroyed),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proofs:
    """The signed proofs of a version; `epsilon`: the largest that any certificate states of unlearning."""

    certificate_ids: list[str] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    epsilon: float | None = None


def _proofs(client: Client, version: VersionOut, *, jwks: dict[str, Any] | None) -> _Proofs:
    """The certificates of a version, each verified here. Raises `CertificateInvalid`."""
    entries = (one for one in client.accounting.ledger(version.model_id) if one.body["version"] == version.number)
    entry = next(entries, None)
    if entry is None or entry.body["weights_sha256"] != version.weights_sha256:
        raise CertificateInvalid(f"The ledger has no such weights for version {version.number}.")
    keys = client.certificates.public_keys() if jwks is None else jwks
    certificate_ids, request_ids, epsilons = [], [], []
    for served in entry.body["requests"]:
        request_id = served["request_id"]
        mine = [one for one in client.deletion_requests.certificates(request_id) if one.model_id == version.model_id]
        if len(mine) != 1:
            raise CertificateInvalid(f"Request {request_id} has no certificate of this model.")
        verdict = verification.verify(mine[0].jws, keys)
        said = verdict.statement["model"]
        if (
            said != {"id": version.model_id, "version": version.number, "weights_sha256": version.weights_sha256}
            or verdict.statement["request"]["id"] != request_id
        ):
            raise CertificateInvalid(f"Certificate {mine[0].id} is not about this version.")
        certificate_ids.append(mine[0].id)
        request_ids.append(request_id)
        epsilons += [one.epsilon for one in verdict.guarantees if one.notion == "unlearning"]
    return _Proofs(certificate_ids=certificate_ids, request_ids=request_ids, epsilon=max(epsilons, default=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """The content of a version: its weights, what its records mean, and the network that it stands on."""

    weights: bytes
    about: dict[str, Any]
    network: bytes | None


def _content(client: Client, model: ModelOut, version: VersionOut) -> _Content:
    weights = client.models.weights(model.id, version.number)
    if hashlib.sha256(weights).hexdigest() != version.weights_sha256:
        raise CertificateInvalid(f"The weights are not those of version {version.number}.")
    dataset = client.datasets.get(model.dataset_id)
    stated = model.mechanism.network
    linearisation = stated and stated.linearisation
    encoder, network = None, None
    if stated is not None:
        found, network = _network(client, stated.sha256)
        encoder = None if linearisation else {"sha256": found.sha256, "batch_size": found.batch_size}
    target = dataset.target and {"min": dataset.target.min, "max": dataset.target.max}
    about = {
        "objective": model.objective,
        "classes": list(dataset.classes),
        "target": target,
        "loss_width": model.mechanism.loss_width,
        "schema": dataset.schema_,
        "linearisation": linearisation and linearisation.model_dump(),
        "encoder": encoder,
    }
    return _Content(weights=weights, about=about, network=network)


def _network(client: Client, sha256: str) -> tuple[NetworkOut, bytes]:
    """The network that a model stands on, and its file. Raises `NotServable`."""
    try:
        return network_of(client, sha256)
    except NetworkUnknown as error:
        raise NotServable(error.code, error.detail) from error


class _Registry:
    """One model on an MLflow server. A run, tagged before any weights are stored with it, stands for each copy: one
    that was interrupted is found by its tags, too."""

    def __init__(self, model: ModelOut, *, name: str, tracking_uri: str | None, experiment: str) -> None:
        from mlflow import MlflowClient

        self._model = model
        self._name = name
        self._mlflow = MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
        self._experiment = experiment
        self._check_name()

    def version_of(self, version: VersionOut) -> "ModelVersion | None":
        """The registered version with the weights of `version`, if there is one."""
        wanted = {"lethe.model_id": self._model.id, "lethe.weights_sha256": version.weights_sha256}
        for found in self._versions(f"name = {_quoted(self._name)}"):
            if wanted.items() <= found.tags.items() and found.status == "READY":
                return found
        return None

    def add(self, version: VersionOut, content: _Content) -> "ModelVersion":
        """Store the weights with a run of their own, and register them."""
        tags = {
            "lethe.model_id": self._model.id,
            "lethe.version": str(version.number),
            "lethe.weights_sha256": version.weights_sha256,
        }
        run = self._mlflow.create_run(
            self._experiment_id(), tags=tags | {_WEIGHTS: "present"}, run_name=f"{self._name}-{version.number}"
        )
        with _as_mlflow(content) as folder:
            self._mlflow.log_artifacts(run.info.run_id, str(folder), _FOLDER)
        self._mlflow.set_terminated(run.info.run_id)
        return self._mlflow.create_model_version(
            self._name, f"runs:/{run.info.run_id}/{_FOLDER}", run_id=run.info.run_id, tags=tags
        )

    def certify(self, found: "ModelVersion", proofs: _Proofs, *, alias: str) -> None:
        """Say what was verified about a version, then point the alias at it."""
        epsilon = self._model.target.epsilon if proofs.epsilon is None else proofs.epsilon
        said = {
            "lethe.certificate_ids": _listed(proofs.certificate_ids),
            "lethe.request_ids": _listed(proofs.request_ids),
            "lethe.epsilon": f"{epsilon:.6g}",
        }
        number = str(found.version)
        for key, value in said.items():
            if found.tags.get(key) != value:
                self._mlflow.set_model_version_tag(self._name, number, key, value)
        aliases = self._mlflow.get_registered_model(self._name).aliases
        if str(aliases.get(alias)) != number:
            self._mlflow.set_registered_model_alias(self._name, alias, number)

    def withdraw(self, alias: str) -> None:
        """Point the alias at nothing."""
        if alias in self._mlflow.get_registered_model(self._name).aliases:
            self._mlflow.delete_registered_model_alias(self._name, alias)

    def destroy_retired(self) -> list[int]:
        """Delete every copy of a version that is not the live one; Lethe's numbers of what is gone.

        Raises `CopiesLeftBehind` after all have been tried.
        """
        destroyed, left_behind = [], []
        for run in self._copies():
            number = int(run.data.tags["lethe.version"])
            if number == self._model.live_version:
                continue
            for found in self._versions(f"run_id = {_quoted(run.info.run_id)}"):
                self._mlflow.delete_model_version(found.name, str(found.version))
            if self._delete_artifacts(run):
                self._mlflow.set_tag(run.info.run_id, _WEIGHTS, "destroyed")
                self._mlflow.delete_run(run.info.run_id)
                destroyed.append(number)
            else:
                self._mlflow.set_tag(run.info.run_id, _WEIGHTS, "left_behind")
                left_behind.append(run.info.run_id)
        if left_behind:
            raise CopiesLeftBehind(
                "The artifact store did not delete the weights of retired versions; delete them there. "
                f"Runs: {', '.join(left_behind)}"
            )
        return destroyed

    def _delete_artifacts(self, run: "Run") -> bool:
        """Return True if nothing is left of the weights of a run; many stores do not let MLflow delete anything."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        uri = self._mlflow.tracking_uri
        try:
            store = get_artifact_repository(run.info.artifact_uri, tracking_uri=uri, registry_uri=uri)
            if store.list_artifacts(_FOLDER):
                store.delete_artifacts(_FOLDER)  # type: ignore[no-untyped-call]
            return not store.list_artifacts(_FOLDER)
        except Exception:  # noqa: BLE001  each store raises errors of its own; with any of them the weights may be there
            return False

    def _copies(self) -> "list[Run]":
        experiment = self._mlflow.get_experiment_by_name(self._experiment)
        if experiment is None:
            return []
        mine = f"tags.`lethe.model_id` = {_quoted(self._model.id)}"
        found: list[Run] = []
        token = None
        while True:
            page = self._mlflow.search_runs([experiment.experiment_id], filter_string=mine, page_token=token)
            found += page
            if not (token := page.token):
                return found

    def _versions(self, which: str) -> "Iterator[ModelVersion]":
        token = None
        while True:
            page = self._mlflow.search_model_versions(which, page_token=token)
            yield from page
            if not (token := page.token):
                return

    def _experiment_id(self) -> str:
        found = self._mlflow.get_experiment_by_name(self._experiment)
        return str(found.experiment_id if found else self._mlflow.create_experiment(self._experiment))

    def _check_name(self) -> None:
        """Make the registered model, or refuse one that is somebody else's."""
        from mlflow.exceptions import MlflowException

        with contextlib.suppress(MlflowException):  # it is there
            self._mlflow.create_registered_model(self._name, tags={"lethe.model_id": self._model.id})
        owner = self._mlflow.get_registered_model(self._name).tags.get("lethe.model_id")
        if owner != self._model.id:
            raise NameTaken(f"The registered model {self._name!r} is not of this model; choose another.")


@contextlib.contextmanager
def _as_mlflow(content: _Content) -> Iterator[Path]:
    """A folder as `mlflow.pyfunc.load_model` reads it, while the block lasts."""
    import mlflow.pyfunc

    with tempfile.TemporaryDirectory() as scratch:
        data, code = Path(scratch) / "data", Path(scratch) / _CODE
        data.mkdir()
        (data / "parameters.safetensors").write_bytes(content.weights)
        (data / "model.json").write_text(json.dumps(content.about))
        if content.network is not None:
            (data / "network.onnx").write_bytes(content.network)
        _copy_code(code)
        folder = Path(scratch) / _FOLDER
        mlflow.pyfunc.save_model(
            str(folder),
            loader_module=f"{_CODE}.mlflow_pyfunc",
            data_path=str(data),
            code_paths=[str(code)],
            pip_requirements=["numpy", "safetensors", *_to_run_the_network(content.about)],
        )
        yield folder


def _to_run_the_network(about: dict[str, Any]) -> list[str]:
    if about["linearisation"]:
        return ["onnx", "torch"]
    return ["onnxruntime"] if about["encoder"] else []


def _copy_code(to: Path) -> None:
    """Copy the modules that encode and predict, as a package of another name: beside a model of another release, or
    where Lethe is installed, each has its own."""
    package = Path(mlflow_pyfunc.__file__).parent
    for file in itertools.chain.from_iterable(package.glob(pattern) for pattern in _SERVED):
        copy = to / file.relative_to(package)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text().replace("from lethe.", f"from {_CODE}."))
    for folder in (to, *(path for path in to.iterdir() if path.is_dir())):  # not empty: some stores refuse such files
        (folder / "__init__.py").write_text('"""Modules of Lethe that served models need."""\n')


def _listed(ids: list[str]) -> str:
    return ",".join(ids)


def _quoted(text: str) -> str:
    if "'" in text:
        raise NameUnusable("Expected a name without quotes.")
    return f"'{text}'"
