"""A network that Opacus trains with differential privacy, and that Lethe knows by its ledger alone.

    LETHE_URL=http://127.0.0.1:8000 LETHE_API_KEY=$(cat .lethe/keys/admin.key) python examples/ledgers/digits.py

The images are scikit-learn's 1797 digits; each person wrote two of them. People are forgotten until the budget is
spent; the next request waits, the network is trained again without them, and its new ledger lets the request go on.
"""

import datetime
import os
import warnings

import numpy as np
import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lethe import Client
from lethe.features.ledgers import accountant
from lethe.features.systems import bundle

warnings.filterwarnings("ignore", module=r"opacus|torch|__main__")
torch.set_num_threads(1)
ROWS_PER_PERSON, DELTA, BUDGET = 2, 1e-4, 16.0
images, digits = load_digits(return_X_y=True)
writers = np.arange(len(digits)) // ROWS_PER_PERSON
held_out = writers % 4 == 3


def train(forgotten: set[int]) -> tuple[dict, float, float]:
    """Train without some writers; return the ledger, Opacus's own epsilon of one row, and the accuracy."""
    kept = ~held_out & ~np.isin(writers, list(forgotten))
    rows = TensorDataset(torch.tensor(images[kept] / 16, dtype=torch.float32), torch.tensor(digits[kept]))
    # Layers that mix rows, such as batch normalisation, would void the ledger; Opacus refuses them.
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    engine = PrivacyEngine(accountant="prv")
    network, optimizer, loader = engine.make_private(
        module=network,
        optimizer=optimizer,
        data_loader=DataLoader(rows, batch_size=64),
        noise_multiplier=1.2,
        max_grad_norm=1.0,
        poisson_sampling=True,
    )
    for _ in range(10):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x), y).backward()
            optimizer.step()
    told = network(torch.tensor(images[held_out] / 16, dtype=torch.float32)).argmax(1).numpy()
    ledger = accountant.from_opacus(engine.accountant.state_dict())
    return ledger, engine.get_epsilon(DELTA), float((told == digits[held_out]).mean())


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


with Client(os.environ["LETHE_URL"], os.environ["LETHE_API_KEY"]) as client:
    terms = {"delta": DELTA, "max_rows_per_person": ROWS_PER_PERSON, "budget_epsilon": BUDGET}
    started = now()
    ledger, epsilon, accuracy = train(forgotten=set())
    model = client.dp_models.create(name="digits", ledger=ledger, trained_from=started, dataset_ids=None, **terms)
    print(f"trained: {accuracy:.1%} right, {sum(steps for _, _, steps in ledger['history'])} steps")
    print(f"one row: epsilon {model.curve[0].epsilon:.3f}, Opacus says {epsilon:.3f}")
    print(f"one person: epsilon {model.epsilon:.3f}; budget: {model.budget_rows} rows within epsilon {BUDGET:g}")

    asked, forgotten = [], set()
    while not client.dp_models.get(model.id).waiting_requests:
        forgotten.add(len(forgotten))
        asked.append(client.deletion_requests.create(subject_id=f"{model.id}-writer-{len(asked)}"))
    *bounded, waiting = asked
    for request in bounded:
        client.deletion_requests.wait(request.id, timeout_seconds=300)
    print(f"{len(bounded)} requests bounded; the next one waits for a retraining")

    started = now()
    ledger, _, accuracy = train(forgotten)
    renewed = client.dp_models.renew(model.id, ledger=ledger, trained_from=started, **terms)
    done = client.deletion_requests.wait(waiting.id, timeout_seconds=300)
    print(f"trained again without them: {accuracy:.1%} right; the request is {done.status}")

    whole = client.deletion_requests.bundle(waiting.id)
    verified = bundle.verify(whole.model_dump_json(), client.certificates.public_keys())
    [line] = [one for one in verified.statement["lines"] if one["system"]["id"] == model.id]
    print(f"bundle: {line['grade']}, epsilon {line['evidence']['epsilon_of_person']:.3f} of one person, verified")
    client.dp_models.retire(model.id)
