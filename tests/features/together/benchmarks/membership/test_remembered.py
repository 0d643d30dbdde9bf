import numpy as np
import pytest
from sklearn.metrics import log_loss

from benchmarks.membership import problems, remembered
from worker.langevin.evaluate import of_classes

ROWS = problems.digits(seed=1).test
PARAMETERS = np.concatenate([np.random.default_rng(1).normal(size=(4, 65)), np.zeros((1, 65))])


def test_accuracy_matches_the_worker() -> None:
    """The mean accuracy equals that of the worker's own evaluation, even if one of the models scores 0 for every
    row."""
    each = [of_classes(model[None, :], [(ROWS.features, ROWS.labels)], 2)["accuracy"] for model in PARAMETERS]
    found = remembered.of(PARAMETERS, ROWS)
    assert (found.accuracy, found.accuracy_std) == pytest.approx((np.mean(each), np.std(each, ddof=1)))


def test_loss_matches_the_cross_entropy() -> None:
    """The mean loss equals the cross-entropy that scikit-learn computes."""
    likely = 1 / (1 + np.exp(-PARAMETERS @ ROWS.features.T.astype(float)))
    each = [log_loss(ROWS.labels, one) for one in likely]
    found = remembered.of(PARAMETERS, ROWS)
    assert (found.loss, found.loss_std) == pytest.approx((np.mean(each), np.std(each, ddof=1)))
