"""The device of a run: its rows resident on one device, all steps taken there, with noise that is made there.

What leaves the device is a gradient, or an iterate after its noise. The same code runs on CPU tensors.
"""

import re

import torch

from worker.langevin.device.rows import DeviceRows

__all__ = ["DeviceRows", "choose"]


def choose(device: str) -> torch.device:
    """The device that a setting names: auto (the first GPU, or else the CPU), cpu, cuda or cuda:i.

    Raises ValueError if it names none, or a GPU that is not there.
    """
    if device == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        return torch.device("cpu")
    named = re.fullmatch(r"cuda(?::([0-9]{1,3}))?", device)
    if named is None:
        raise ValueError(f"Expected {device=} to be auto, cpu or cuda:i")
    index, there = int(named[1] or 0), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= there:
        raise ValueError(
            f"Expected {device=} to be one of the {there} GPUs that torch sees: check its driver and that torch is a "
            "CUDA build, or choose auto or cpu"
        )
    return torch.device("cuda", index)
