"""The examples do what their pages say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import Service

DIABETES = Path(__file__).parents[2] / "examples" / "diabetes"
OURS = re.compile(r"^(Lethe, .*): R\^2 = (-?[\d.]+), mean absolute error (\d+) (.*)$", re.MULTILINE)


def test_a_regression_forgets(service: Service) -> None:
    """The diabetes example prints what its page does, but for the noise in what is learned: R^2 is 0.35 with a standard
    deviation of 0.03, so that by chance it is seven of them below once in 10^11 runs."""
    key = service.data_dir / "keys" / "admin.key"
    script = [sys.executable, str(DIABETES / "regression.py"), "--url", service.address, "--key-file", str(key)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = OURS.findall(done.stdout)
    assert len(found) == 2
    assert all(0.14 < float(r_squared) < 0.5 and 40 < int(error) < 70 for _, r_squared, error, _ in found)
    [stated] = re.findall(r"^```text\n(.*?)^```", (DIABETES / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert OURS.sub(r"\1 \4", done.stdout) == OURS.sub(r"\1 \4", stated)


@pytest.mark.soak
def test_embeddings_and_several_labels_forget(service: Service) -> None:
    """Digits by embeddings, and people with several labels, are learned without a warning, to within twenty points of
    scikit-learn (with so few people epsilon 1 costs ten), and each forgets a person with a certificate that
    verifies."""
    key = (service.data_dir / "keys" / "admin.key").read_text().strip()
    environment = os.environ | {"LETHE_URL": service.address, "LETHE_API_KEY": key}
    for script in ("embeddings/digits.py", "multilabel/conditions.py"):
        command = [sys.executable, str(DIABETES.parent / script)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        theirs, ours = (float(share) for share in re.findall(r": ([0-9.]+)% (?:right|of labels)", done.stdout))
        assert ours > theirs - 20, done.stdout
        assert "warnings: none" in done.stdout
        assert re.search(r"^completed: epsilon = [01]\.\d+ of [a-z]+-0042 is left, verified", done.stdout, re.MULTILINE)
