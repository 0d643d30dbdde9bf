"""Models that move the weights of a public network: which network, which weights, and how many numbers that is."""

import dataclasses
import math

from app.catalogue import datasets
from app.db.tables import Dataset, Network
from app.encoders import service as encoders
from lethe.contract.models import TangentIn
from lethe.contract.problems import FieldError, PreconditionFailed
from lethe.contract.spelling import expected
from lethe.proof.network import Linearisation, PublicNetwork
from lethe.tangents.supported import unsupported


def linearised(dataset: Dataset, network: Network, asked: TangentIn) -> tuple[PublicNetwork, int]:
    """The network as the mechanism of a tangent model of this dataset states it, and the number of its parameters.

    Raises `PreconditionFailed` where the network cannot be differentiated, or does not fit the dataset.
    """
    if said := unsupported(network.operators, network.opset):
        raise _refused(f"Network {network.id} cannot be differentiated: {said}.", network_id="expected another network")
    if dataset.network_id is not None:
        raise _refused(
            "The rows of this dataset are features of a network already; learn a model of them, or send the records"
            " without an encoder.",
            network_id="expected a dataset without an encoder",
        )
    num_inputs = math.prod(network.input_shape)
    if dataset.num_features != num_inputs:
        raise _refused(
            f"Network {network.id} takes {num_inputs} numbers of a row, and the dataset has {dataset.num_features}.",
            network_id=f"expected a network of {dataset.num_features} inputs",
        )
    _check_outputs(dataset, network)
    shapes = {one["name"]: one["shape"] for one in network.parameters}
    if unknown := sorted(set(asked.layers) - shapes.keys()):
        said = expected(sorted(shapes), found=unknown[0])
        raise _refused(f"Network {network.id} has no weights {unknown[0]!r}.", layers=said)
    linearisation = Linearisation(
        layers=tuple(asked.layers),
        rank=asked.rank,
        seed=asked.seed,
        least_norm=asked.least_norm,
        offset=asked.offset,
    )
    num_parameters = sum(math.prod(linearisation.shape(shapes[name])) for name in linearisation.layers)
    return dataclasses.replace(encoders.named(network), linearisation=linearisation), num_parameters


def _check_outputs(dataset: Dataset, network: Network) -> None:
    """One score for each class or label, or for two classes one, or two whose difference is taken."""
    if dataset.target:
        raise _refused(
            "Tangent models learn classes or labels, and this dataset has a target.", network_id="expected none"
        )
    classes = len(dataset.classes)
    allowed = (1, 2) if classes == 2 and not datasets.has_labels(dataset) else (classes,)
    if network.output_size not in allowed:
        said = " or ".join(str(one) for one in allowed)
        raise _refused(
            f"Network {network.id} has {network.output_size} outputs, and this dataset needs {said}.",
            network_id=f"expected a network of {said} outputs",
        )


def _refused(detail: str, **said: str) -> PreconditionFailed:
    return PreconditionFailed(detail, [FieldError(f"tangent.{field}", message) for field, message in said.items()])
