"""Free text as dense rows and as sparse ones: `./dev bench sparse`. docs/decisions/0018-dense-rows.md quotes it.

The texts are names of pictures in eight languages, from the package `emoji`; what is learned is the language, from the
hashed n-grams of 1 to 4 characters. For each number of features: the accuracy at epsilon 1 of what Lethe learns with
all defaults, and of scikit-learn; the bytes of a row; and the time of one pass for the gradient, by the kernel over
dense rows and by two products of a compressed sparse matrix (SciPy, one thread), beside the noise of the pass's steps,
which is the same for both.
"""

import time
from collections.abc import Callable
from typing import Any

import emoji
import numpy as np
import torch
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

from benchmarks import page
from benchmarks.vectors import encode_vectors
from lethe.proof import calibration
from worker.langevin import chain, init
from worker.langevin.evaluate import of_classes
from worker.langevin.gradient import HostRows
from worker.langevin.noise import SystemNoise

LANGUAGES = ("de", "en", "es", "fr", "id", "it", "pt", "tr")
FEATURES = (512, 1024, 2048, 4096)
EPSILON, TIMES = 1.0, 5


def main() -> None:
    written, spoken = texts()
    results: dict[str, Any] = {
        "machine": page.machine(),
        "texts": len(written),
        "languages": len(LANGUAGES),
        "rows": [],
    }
    for features in FEATURES:
        results["rows"].append(measured(written, spoken, features))
        print(printed(results), flush=True)
    page.write("sparse", results, page.RESULTS)


def texts() -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
    """Each name that one language alone has, and which."""
    emoji.config.load_language()
    found: dict[str, set[int]] = {}
    for names in emoji.EMOJI_DATA.values():
        if names["status"] == emoji.STATUS["fully_qualified"]:
            for place, language in enumerate(LANGUAGES):
                found.setdefault(names[language].strip(":").replace("_", " "), set()).add(place)
    of_one = {phrase: of.pop() for phrase, of in sorted(found.items()) if len(of) == 1}
    return list(of_one), np.array(list(of_one.values()), np.int32)


def measured(written: list[str], spoken: Any, features: int) -> dict[str, Any]:
    hashed, held_out = hashes(written, features), np.arange(len(written)) % 4 == 3
    dense = encode_vectors(hashed.toarray())
    train, labels = np.ascontiguousarray(dense[~held_out]), spoken[~held_out]
    mechanism = calibration.mechanism_for(
        calibration.ModelSettings(epsilon=EPSILON, delta=len(train) ** -1.1),
        num_slots=len(train),
        num_classes=len(LANGUAGES),
        num_parameters=len(LANGUAGES) * train.shape[1],
    )
    ran = chain.run(
        mechanism=mechanism,
        features=train,
        labels=labels,
        initial=init.origin_of(mechanism, train.shape[1]),
        steps=mechanism.learn_steps,
        noise=SystemNoise(),
        on_progress=lambda steps_done: None,
    )
    rival = LogisticRegression(max_iter=200).fit(hashed[~held_out], labels)
    matrix = sparse.csr_matrix(train)
    weights = torch.from_numpy(ran.parameters)
    with HostRows(train, labels, num_classes=len(LANGUAGES)) as rows:
        of_dense = seconds(lambda: rows.gradient(weights))
    noise = SystemNoise()
    return {
        "features": features,
        "nonzero": matrix.nnz / np.prod(matrix.shape),
        "accuracy": 100
        * float(of_classes(ran.parameters, [(dense[held_out], spoken[held_out])], len(LANGUAGES))["accuracy"]),
        "rival": 100 * rival.score(hashed[held_out], spoken[held_out]),
        "dense_bytes": train.nbytes / len(train),
        "sparse_bytes": (matrix.data.nbytes + matrix.indices.nbytes) / len(train),
        "dense_seconds": of_dense,
        "sparse_seconds": seconds(lambda: sparse_gradient(matrix, labels, ran.parameters)),
        "noise_seconds": seconds(lambda: [noise.normal(weights.numel()) for _ in range(mechanism.num_batches)]),
        "num_batches": mechanism.num_batches,
    }


def hashes(written: list[str], features: int) -> Any:
    return HashingVectorizer(analyzer="char_wb", ngram_range=(1, 4), n_features=features).transform(written)


def difference(written: list[str], spoken: Any, *, features: int) -> float:
    """The largest between the gradients of dense and of sparse rows, of weights drawn at random, by the largest."""
    dense = encode_vectors(hashes(written, features).toarray())
    weights = np.random.default_rng(0).normal(size=(len(LANGUAGES), dense.shape[1]))
    with HostRows(dense, spoken, num_classes=len(LANGUAGES)) as rows:
        found = rows.gradient(torch.from_numpy(weights)).numpy()
    return float(np.abs(found - sparse_gradient(sparse.csr_matrix(dense), spoken, weights)).max() / np.abs(found).max())


def sparse_gradient(matrix: Any, labels: Any, parameters: Any) -> Any:
    """The sum of the gradients of the softmax  # (C, d)"""
    scores = matrix @ parameters.T.astype(np.float32)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    scores[np.arange(len(labels)), labels] -= 1
    return (matrix.T @ scores).T


def seconds(call: Callable[[], Any]) -> float:
    """The shortest of a few times."""
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)


def printed(results: dict[str, Any]) -> str:
    heads = (
        "features",
        "not 0, %",
        "accuracy, %",
        "scikit-learn",
        "bytes a row: dense, sparse",
        "ms a pass: dense, sparse, noise",
    )
    return page.table(
        heads,
        [
            (
                row["features"],
                f"{100 * row['nonzero']:.1f}",
                f"{row['accuracy']:.1f}",
                f"{row['rival']:.1f}",
                f"{row['dense_bytes']:,.0f}, {row['sparse_bytes']:,.0f}",
                ", ".join(f"{1e3 * row[f'{what}_seconds']:.3g}" for what in ("dense", "sparse", "noise")),
            )
            for row in results["rows"]
        ],
    )


if __name__ == "__main__":
    main()
