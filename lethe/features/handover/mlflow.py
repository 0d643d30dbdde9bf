"""A model's live version, and no earlier version, in an MLflow registry: `register(client, model_id, name=...)`.

MLflow keeps the artifacts of deleted models. Once Lethe has retired a version, `register` deletes both the registered
version and its artifacts, because those weights were trained on people who have been forgotten since. It also deletes
logged models with the same weights, and reports to Lethe what happened to each copy.
"""

import ast
import contextlib
import functools
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lethe
from lethe import Client, errors, verification
from lethe.contract import models, problems
from lethe.features.handover import calls, mlflow_pyfunc
from lethe.features.lineage.contract import CopyKind, DestructionCheck
from lethe.features.networks.contract import NetworkOut

# Importing mlflow takes seconds.
if TYPE_CHECKING:
    from mlflow.entities import FileInfo, Run
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

_FOLDER = "model"
_CODE = "lethe_served"
_WEIGHTS = "lethe.weights"
"""Tag of an MLflow run: `present`, `destroyed`, or `left_behind` if the artifact store did not delete the weights."""


class NotServable(errors.Conflict):
    """The live version is currently not allowed to be served; `code` is the reason."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class NameTaken(errors.Conflict):
    """The registered model with this name belongs to another Lethe model."""

    code = "name_taken"


class NameUnusable(errors.Conflict):
    """MLflow cannot look up a model by this name."""

    code = "name_unusable"


class CopiesLeftBehind(errors.Problem):
    """The artifact store did not delete the weights of retired versions. They must be deleted there by hand.

    The MLflow runs of these versions have the tag `lethe.weights` = `left_behind`.
    """

    code = "copies_left_behind"
    title = "Weights of retired versions are left"
    status = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Registered version that the alias points to.

    `destroyed` lists the Lethe version numbers whose artifacts this call deleted.
    """

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
    """Register the live version under `name`, point `alias` at it if it is certified, and delete earlier versions.

    The alias moves if all of the version's certificates verify with `jwks` (default: the keys that the gateway
    publishes) and the gateway reports that the version may be served; otherwise the alias is removed. Repeating the
    call is a no-op. The artifacts are stored with runs in `experiment`; `tracking_uri` defaults to MLflow's setting.
    Requires a key with models:read and accounting:read, and `pip install 'lethe-sdk[mlflow]'`.

    Retired versions are deleted even if the live version cannot be registered.

    Raises:
        NotServable: if the live version is currently not allowed to be served.
        CertificateInvalid: if a certificate does not verify or is for other weights.
        CopiesLeftBehind: if the artifact store did not delete the weights of a retired version.
        Conflict: if `name` belongs to another Lethe model.
        Problem: if a call fails for any other reason.
    """
    model = client.models.get(model_id)
    registry = _RegisteredModel(client, model, name=name, tracking_uri=tracking_uri, experiment=experiment)
    destroyed: list[int] = []
    replaced_by: int | None = None
    try:
        if model.live_version is None:
            raise NotServable("not_live", f"Model {model_id} has no version yet.")
        version = client.models.version(model_id, model.live_version)
        if version.held:
            raise NotServable("held", f"Version {version.number} misses the quality gate of its model.")
        registered = registry.version_of(version) or registry.add(version, _content(client, model, version))
        proofs = _proofs(client, version, jwks=jwks)
        serving = client.models.serving(model_id, weights_sha256=version.weights_sha256)
        if not serving.may_serve:
            raise NotServable(serving.reason or "not_live", f"Version {version.number} may not be served now.")
        registry.certify(registered, proofs, alias=alias)
        replaced_by = version.number
    except (NotServable, errors.CertificateInvalid):
        registry.withdraw(alias)
        raise
    finally:
        destroyed = registry.destroy_retired(replaced_by=replaced_by)
    return Registered(
        name=name,
        version=str(registered.version),
        lethe_version=version.number,
        certificate_ids=tuple(proofs.certificate_ids),
        destroyed=tuple(destroyed),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proofs:
    """A version's verified certificates. `epsilon` is the largest `unlearning` epsilon that any of them states."""

    certificate_ids: list[str] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    epsilon: float | None = None


def _proofs(client: Client, version: models.VersionOut, *, jwks: dict[str, Any] | None) -> _Proofs:
    """Verify a version's certificates and return them. Raises `CertificateInvalid`."""
    ledger = client.accounting.ledger(version.model_id)
    entry = next((item for item in ledger if item.body["version"] == version.number), None)
    if entry is None or entry.body["weights_sha256"] != version.weights_sha256:
        raise errors.CertificateInvalid(f"The ledger has no such weights for version {version.number}.")
    keys = client.certificates.public_keys() if jwks is None else jwks
    certificate_ids, request_ids, epsilons = [], [], []
    for served in entry.body["requests"]:
        request_id = served["request_id"]
        certificates = client.deletion_requests.certificates(request_id)
        own = [certificate for certificate in certificates if certificate.model_id == version.model_id]
        if len(own) != 1:
            raise errors.CertificateInvalid(f"Request {request_id} has no certificate of this model.")
        verdict = verification.verify(own[0].jws, keys)
        stated = verdict.statement["model"]
        if (
            stated != {"id": version.model_id, "version": version.number, "weights_sha256": version.weights_sha256}
            or verdict.statement["request"]["id"] != request_id
        ):
            raise errors.CertificateInvalid(f"Certificate {own[0].id} is not about this version.")
        certificate_ids.append(own[0].id)
        request_ids.append(request_id)
        epsilons += [item.epsilon for item in verdict.guarantees if item.notion == "unlearning"]
    return _Proofs(certificate_ids=certificate_ids, request_ids=request_ids, epsilon=max(epsilons, default=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _VersionContent:
    """A version's content: its weights, a description of its records and results, and the network's file."""

    weights: bytes
    about: dict[str, Any]
    network: bytes | None


def _content(client: Client, model: models.ModelOut, version: models.VersionOut) -> _VersionContent:
    weights = client.models.weights(model.id, version.number)
    if hashlib.sha256(weights).hexdigest() != version.weights_sha256:
        raise errors.CertificateInvalid(f"The weights are not those of version {version.number}.")
    dataset = client.datasets.get(model.dataset_id)
    stated = model.mechanism.network
    linearisation = stated and stated.linearisation
    encoder, network = None, None
    if stated is not None:
        entry, network = _network(client, stated.sha256)
        encoder = None if linearisation else {"sha256": entry.sha256}
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
    return _VersionContent(weights=weights, about=about, network=network)


def _network(client: Client, sha256: str) -> tuple[NetworkOut, bytes]:
    """Return a model's network and its file. Raises `NotServable` if the gateway has no such network."""
    try:
        return calls.network_of(client, sha256)
    except problems.NetworkUnknown as error:
        raise NotServable(error.code, error.detail) from error


class _RegisteredModel:
    """One model on an MLflow server.

    Each copy of weights has a run that is tagged before the weights are stored, so that an interrupted copy can be
    found by its tags.
    """

    def __init__(
        self, client: Client, model: models.ModelOut, *, name: str, tracking_uri: str | None, experiment: str
    ) -> None:
        from mlflow import MlflowClient

        self._client = client
        self._model = model
        self._name = name
        self._mlflow = MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
        self._experiment = experiment
        self._check_name()

    def version_of(self, version: models.VersionOut) -> "ModelVersion | None":
        """Return the registered version that has the same weights as `version`, or None if there is none."""
        tags = {"lethe.model_id": self._model.id, "lethe.weights_sha256": version.weights_sha256}
        for registered in self._versions(f"name = {_quoted(self._name)}"):
            if tags.items() <= registered.tags.items() and registered.status == "READY":
                return registered
        return None

    def add(self, version: models.VersionOut, content: _VersionContent) -> "ModelVersion":
        """Store the weights in a separate run and register them."""
        tags = {
            "lethe.model_id": self._model.id,
            "lethe.version": str(version.number),
            "lethe.weights_sha256": version.weights_sha256,
        }
        run = self._mlflow.create_run(
            self._experiment_id(), tags=tags | {_WEIGHTS: "present"}, run_name=f"{self._name}-{version.number}"
        )
        calls.name_copy(self._client, self._model.id, version.number, kind=CopyKind.MLFLOW, place=_place(run))
        with _as_mlflow(content) as folder:
            self._mlflow.log_artifacts(run.info.run_id, str(folder), _FOLDER)
        self._mlflow.set_terminated(run.info.run_id)
        return self._mlflow.create_model_version(
            self._name, f"runs:/{run.info.run_id}/{_FOLDER}", run_id=run.info.run_id, tags=tags
        )

    def certify(self, registered: "ModelVersion", proofs: _Proofs, *, alias: str) -> None:
        """Tag a version with its certificates, then point the alias at it."""
        epsilon = self._model.target.epsilon if proofs.epsilon is None else proofs.epsilon
        tags = {
            "lethe.certificate_ids": ",".join(proofs.certificate_ids),
            "lethe.request_ids": ",".join(proofs.request_ids),
            "lethe.epsilon": f"{epsilon:.6g}",
        }
        number = str(registered.version)
        for key, value in tags.items():
            if registered.tags.get(key) != value:
                self._mlflow.set_model_version_tag(self._name, number, key, value)
        aliases = self._mlflow.get_registered_model(self._name).aliases
        if str(aliases.get(alias)) != number:
            self._mlflow.set_registered_model_alias(self._name, alias, number)

    def withdraw(self, alias: str) -> None:
        """Remove the alias if it exists."""
        if alias in self._mlflow.get_registered_model(self._name).aliases:
            self._mlflow.delete_registered_model_alias(self._name, alias)

    def destroy_retired(self, *, replaced_by: int | None) -> list[int]:
        """Delete all copies of versions that are not live, and return these versions' numbers in Lethe. Copies whose
        files could not be deleted are recorded as replaced by version `replaced_by`, if the alias points at it.

        Raises `CopiesLeftBehind` after trying all copies.
        """
        experiment = self._mlflow.get_experiment_by_name(self._experiment)
        if experiment is None:
            return []
        logged = self._delete_logged_models(experiment.artifact_location)
        destroyed, left_behind = [], [f"models:/{model_id}" for model_id in logged]
        search = functools.partial(self._mlflow.search_runs, [experiment.experiment_id])
        for run in list(_all(search, filter_string=f"tags.`lethe.model_id` = {_quoted(self._model.id)}")):
            number = int(run.data.tags["lethe.version"])
            if number == self._model.live_version:
                continue
            self._delete_versions(f"run_id = {_quoted(run.info.run_id)}")
            is_gone = self._delete_artifacts(run.info.artifact_uri, _FOLDER) and {number, None}.isdisjoint(
                logged.values()
            )
            stated: dict[str, Any] = {"destroyed": DestructionCheck.LISTED} if is_gone else {"replaced_by": replaced_by}
            calls.state_copies(self._client, self._model.id, number, kind=CopyKind.MLFLOW, place=_place(run), **stated)
            self._mlflow.set_tag(run.info.run_id, _WEIGHTS, "destroyed" if is_gone else "left_behind")
            if is_gone:
                self._mlflow.delete_run(run.info.run_id)
                destroyed.append(number)
            else:
                left_behind.append(run.info.run_id)
        if left_behind:
            raise CopiesLeftBehind(
                "The artifact store did not delete the weights of retired versions; delete them there. "
                f"Runs and logged models: {', '.join(left_behind)}"
            )
        return destroyed

    def _delete_logged_models(self, root: str) -> dict[str, int | None]:
        """Delete an experiment's logged models (`models/m-...`) that contain a retired version's weights, including
        models that MLflow no longer lists. Return the models that could not be deleted, each mapped to Lethe's version
        number, or to None if the store cannot be searched."""
        from mlflow.exceptions import MlflowException

        store = self._store(root)
        try:
            numbers = {folder.path: self._retired_in(store, folder) for folder in store.list_artifacts("models")}
        except errors.Problem:
            raise
        except Exception:  # noqa: BLE001
            return {"m-*": None}
        left: dict[str, int | None] = {}
        for path, number in numbers.items():
            if number is not None:
                model_id = path.removeprefix("models/")
                self._delete_versions(f"source_path = {_quoted(f'models:/{model_id}')}")
                # MLflow may have deleted the logged model, and kept its files.
                with contextlib.suppress(MlflowException):
                    self._mlflow.delete_logged_model(model_id)
                if not self._delete_artifacts(root, path):
                    left[model_id] = number
        return left

    def _retired_in(self, store: "ArtifactRepository", file: "FileInfo") -> int | None:
        """Return Lethe's number for the retired version whose weights are in this file or folder, or None."""
        if file.is_dir:
            numbers = (self._retired_in(store, inner) for inner in store.list_artifacts(file.path))
            return next((number for number in numbers if number is not None), None)
        if not file.path.endswith(".safetensors"):
            return None
        with tempfile.TemporaryDirectory() as scratch:
            content = Path(store.download_artifacts(file.path, scratch)).read_bytes()  # type: ignore[no-untyped-call]
        try:
            digest = hashlib.sha256(content).hexdigest()
            number = self._client.models.serving(self._model.id, weights_sha256=digest).version
        except problems.VersionUnknown:
            return None
        return None if number == self._model.live_version else number

    def _delete_artifacts(self, root: str, folder: str) -> bool:
        """Delete an artifact folder; return True if it is gone. Many stores do not let MLflow delete anything."""
        try:
            store = self._store(root)
            if store.list_artifacts(folder):
                store.delete_artifacts(folder)  # type: ignore[no-untyped-call]
            return not store.list_artifacts(folder)
        # Each store raises different errors; after any of them the weights may still exist.
        except Exception:  # noqa: BLE001
            return False

    def _store(self, root: str) -> "ArtifactRepository":
        """Return the artifact store at a URI. `mlflow-artifacts:` denotes a proxy on the tracking server."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        uri = self._mlflow.tracking_uri
        return get_artifact_repository(root, tracking_uri=uri, registry_uri=uri)

    def _delete_versions(self, condition: str) -> None:
        for registered in list(self._versions(condition)):
            self._mlflow.delete_model_version(registered.name, str(registered.version))

    def _versions(self, condition: str) -> "Iterator[ModelVersion]":
        return _all(self._mlflow.search_model_versions, filter_string=condition)

    def _experiment_id(self) -> str:
        experiment = self._mlflow.get_experiment_by_name(self._experiment)
        return str(experiment.experiment_id if experiment else self._mlflow.create_experiment(self._experiment))

    def _check_name(self) -> None:
        """Create the registered model if necessary. Raises `NameTaken` if the name belongs to another Lethe model."""
        from mlflow.exceptions import MlflowException

        # The registered model may exist.
        with contextlib.suppress(MlflowException):
            self._mlflow.create_registered_model(self._name, tags={"lethe.model_id": self._model.id})
        owner = self._mlflow.get_registered_model(self._name).tags.get("lethe.model_id")
        if owner != self._model.id:
            raise NameTaken(f"The registered model {self._name!r} is not of this model; choose another.")


@contextlib.contextmanager
def _as_mlflow(content: _VersionContent) -> Iterator[Path]:
    """Yield a temporary folder that `mlflow.pyfunc.load_model` can load."""
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
            loader_module=f"{_CODE}.features.handover.mlflow_pyfunc",
            data_path=str(data),
            code_paths=[str(code)],
            pip_requirements=["numpy", "safetensors", *_requirements(content.about)],
        )
        yield folder


def _requirements(about: dict[str, Any]) -> list[str]:
    if about["linearisation"]:
        return ["onnx", "torch"]
    return ["onnxruntime"] if about["encoder"] else []


def _copy_code(to: Path) -> None:
    """Copy the modules for encoding and prediction into a package with another name.

    The served model therefore predicts the same with any release of Lethe installed, or with none.
    """
    root = Path(lethe.__file__).parent
    for file in _modules_of(Path(mlflow_pyfunc.__file__), root):
        copy = to / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text().replace("from lethe.", f"from {_CODE}."))
    # Some artifact stores refuse empty files.
    for folder in (to, *(path for path in to.rglob("*") if path.is_dir())):
        (folder / "__init__.py").write_text('"""Modules of Lethe that served models need."""\n')


def _modules_of(file: Path, root: Path) -> set[Path]:
    """Return the files of a `lethe` module (package at `root`) and of all `lethe` modules that it imports."""
    modules, pending = set[Path](), {file}
    while pending:
        file = pending.pop()
        modules.add(file)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lethe."):
                path = root.joinpath(*str(node.module).split(".")[1:])
                names = [path / f"{alias.name}.py" for alias in node.names]
                pending |= {
                    candidate for candidate in (path.with_suffix(".py"), *names) if candidate.is_file()
                } - modules
    return modules


def _all(search: Callable[..., Any], **query: Any) -> Iterator[Any]:
    """Yield the items of all pages of a search."""
    token = None
    while True:
        page = search(**query, page_token=token)
        yield from page
        if not (token := page.token):
            return


def _place(run: "Run") -> str:
    return f"run {run.info.run_id}"


def _quoted(text: str) -> str:
    if "'" in text:
        raise NameUnusable("Expected a name without quotes.")
    return f"'{text}'"
