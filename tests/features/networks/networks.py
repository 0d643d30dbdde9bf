"""Small public networks, as ONNX files of them."""

import io
import warnings

import torch


def exported(network: torch.nn.Module, num_features: int) -> bytes:
    """Return the ONNX file that torch exports for a network that takes rows of shape (batch, num_features)."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # torch warns of a newer exporter, which writes the same operators for these networks.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            (torch.zeros(2, num_features),),
            file,
            dynamo=False,
            input_names=["rows"],
            output_names=["scores"],
            dynamic_axes={"rows": {0: "batch"}, "scores": {0: "batch"}},
        )
    return file.getvalue()


def perceptron(num_features: int, num_outputs: int, *, width: int = 8, seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(num_features, width), torch.nn.Tanh(), torch.nn.Linear(width, num_outputs)
    )


def convolutions(num_outputs: int, *, side: int = 8, seed: int = 0) -> torch.nn.Sequential:
    """Return an image network with the usual operators, for square images given as rows of side^2 pixels."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, side, side)),
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(4, 6, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(6),
        torch.nn.GELU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.LayerNorm(24),
        torch.nn.Linear(24, num_outputs),
    )
