"""Ways to forget, one harness: `./dev bench rivals [--quick] [--seed N] [--data DIR]`.

Every rival learns the same l2-regularised logistic regression on the same rows, then serves the same deletion requests,
one after the other. Measured: passes over the rows, seconds, accuracy afterwards; and, on a small problem with one
planted record, a lower confidence bound on what the published weights still tell of it; and how models that forgot a
group compare with models that never had it. `problems.py` has the data,
`rival.py` what a rival is; `chains.py`, `descent.py`, `refits.py` and `removal.py` are the rivals, with their sources.

Data without `--data`: scikit-learn's digits, and the census of `examples/adult`. With it also DIR/mnist.npz (arrays
x_train, y_train, x_test, y_test). The seed decides rows and requests; no noise is seeded. Results go to
benchmarks/results and docs/evidence from a full run with `--data`, to build/evidence from any other.
"""
