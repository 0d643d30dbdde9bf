"""Train a network of one hidden layer with torch: the label is `bought`, all other columns are numbers."""

import json
import os

import numpy as np
import pyarrow as pa
import torch

torch.manual_seed(int(os.environ["LETHE_SEED"]))
torch.use_deterministic_algorithms(True)
# Sums in another order differ in their last digits; one thread has one order.
torch.set_num_threads(1)


def read(name):
    with pa.memory_map(name) as file:
        table = pa.ipc.open_stream(file).read_all()
    columns = [table.column(name).to_numpy() for name in table.column_names if name not in ("bought", "town")]
    labels = table.column("bought").to_numpy().astype(np.float32)
    return torch.tensor(np.stack(columns, axis=1), dtype=torch.float32), torch.tensor(labels)


x, y = read("rows.arrow")
x_measured, y_measured = read("holdout.arrow")
mean, scale = x.mean(0), x.std(0) + 1e-6
model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
for _ in range(200):
    optimiser.zero_grad()
    logits = model((x - mean) / scale)[:, 0]
    torch.nn.functional.binary_cross_entropy_with_logits(logits, y).backward()
    optimiser.step()
with torch.no_grad():
    right = (model((x_measured - mean) / scale)[:, 0] > 0) == (y_measured > 0.5)

state = {name: value.numpy() for name, value in model.state_dict().items()}
np.savez("artefacts/network.npz", mean=mean.numpy(), scale=scale.numpy(), **state)
with open("metrics.json", "w") as file:
    json.dump({"accuracy": float(right.float().mean())}, file)
