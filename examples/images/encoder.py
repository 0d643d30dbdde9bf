"""An encoder of small images that learned from nobody, written as an ONNX file.

    .venv/bin/python examples/images/encoder.py --size 28 --stride 4 waves.onnx

Its weights are a formula: Morlet wavelets of two scales and eight directions, whose modulus is averaged around each
place, which is a scattering transform of first order (Bruna and Mallat, Invariant scattering convolution networks,
2013). What the eight directions of a scale have in common at a place is taken off, and the rest divided by its length,
so that faint strokes count as much as bold ones. All that is a function of one image.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

DIRECTIONS, SCALES = 8, 2
LICENCE = "CC0-1.0"
PROVENANCE = "Nothing: Morlet wavelets of two scales and eight directions, by formula (examples/images/encoder.py)."
DARK = 0.01**2
"""Added to the squared length of what a place shows: one without any contrast stays dark."""
OPSET, FORMAT = 17, 9


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--size", type=int, default=28, help="of an image, in pixels")
    arguments.add_argument("--stride", type=int, default=4, help="pixels from one place to the next")
    arguments.add_argument("file", type=Path)
    given = arguments.parse_args()
    given.file.write_bytes(waves(given.size, given.stride))


def waves(size: int, stride: int) -> bytes:
    """An ONNX file from images (batch, size * size) of shades from 0 to 1 to 16 features of each place."""
    if size % stride:
        raise ValueError(f"Expected size={size} to be a multiple of stride={stride}")
    places = (size // stride) ** 2
    graph = Writer()
    graph.reshape("x", [-1, 1, size, size], "image")
    graph.constant("axis", np.array([1]))
    graph.constant("dark", np.array(DARK, np.float32))
    for scale in range(SCALES):
        graph.modulus("image", f"waves_{scale}", wavelets(scale))
        graph.mean(f"waves_{scale}", f"mean_{scale}", gaussian(0.4 * stride), maps=DIRECTIONS, stride=stride)
        graph.contrast(f"mean_{scale}", f"contrast_{scale}")
    graph.add("Concat", [f"contrast_{scale}" for scale in range(SCALES)], "contrasts", axis=1)
    graph.add("Flatten", ["contrasts"], "features")
    return graph.file(size * size, SCALES * DIRECTIONS * places)


class Writer:
    """The nodes and weights of a graph from `x` to `features`, in their order."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value: NDArray[Any]) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def reshape(self, rows: str, shape: list[int], output: str) -> None:
        self.add("Reshape", [rows, self.constant(f"{output}_shape", np.array(shape))], output)

    def modulus(self, images: str, output: str, filters: NDArray[np.complex128]) -> None:
        """|image * filter|, of every filter."""
        squares = []
        for part, kernels in {"real": filters.real, "imaginary": filters.imag}.items():
            name = f"{output}_{part}"
            self.convolution(images, name, kernels)
            squares.append(self.add("Mul", [name, name], f"{name}_squared"))
        self.add("Sqrt", [self.add("Add", squares, f"{output}_squared")], output)

    def mean(self, images: str, output: str, kernel: NDArray[np.float64], *, maps: int, stride: int) -> None:
        """Each map by itself, smoothed, of each `stride`-th place."""
        self.convolution(images, output, np.tile(kernel, (maps, 1, 1)), group=maps, strides=[stride] * 2)

    def contrast(self, maps: str, output: str) -> None:
        """Deviations of the directions of a place from their mean, over their length."""
        self.add("ReduceMean", [maps], f"{output}_common", axes=[1])
        rest = self.add("Sub", [maps, f"{output}_common"], f"{output}_rest")
        self.add("Mul", [rest, rest], f"{output}_squares")
        self.add("ReduceSum", [f"{output}_squares", "axis"], f"{output}_sum")
        self.add("Add", [f"{output}_sum", "dark"], f"{output}_squared")
        self.add("Div", [rest, self.add("Sqrt", [f"{output}_squared"], f"{output}_length")], output)

    def convolution(self, images: str, output: str, kernels: NDArray[np.float64], **attributes: Any) -> None:
        around = kernels.shape[-1] // 2
        weights = self.constant(f"{output}_kernel", kernels[:, None].astype(np.float32))
        self.add("Conv", [images, weights], output, pads=[around] * 4, **attributes)

    def file(self, num_inputs: int, num_outputs: int) -> bytes:
        ends = (("x", num_inputs), ("features", num_outputs))
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width]) for name, width in ends)
        graph = helper.make_graph(self.nodes, "waves", [x], [y], self.weights)
        opsets = [helper.make_opsetid("", OPSET)]
        content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=FORMAT).SerializeToString()
        return content


def wavelets(scale: int) -> NDArray[np.complex128]:
    """Morlet wavelets (8, k, k) of a scale, each of another direction; their mean is 0."""
    sigma, frequency, slant = 0.8 * 2**scale, 0.75 * np.pi / 2**scale, 4 / DIRECTIONS
    reach = 3 + 2 * scale
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    found = []
    for angle in np.pi * np.arange(DIRECTIONS) / DIRECTIONS:
        along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
        envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
        wave = envelope * np.exp(1j * frequency * along)
        found.append((wave - envelope * wave.sum() / envelope.sum()) * slant / (2 * np.pi * sigma**2))
    return np.array(found)


def gaussian(sigma: float) -> NDArray[np.float64]:
    """Weights (k, k) of a mean around a place."""
    reach = round(3.5 * sigma)
    line = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    square = np.outer(line, line)
    return square / square.sum()


if __name__ == "__main__":
    main()
