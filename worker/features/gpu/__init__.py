"""Runs on a GPU: rows reside on one device, and all steps run there, with noise that is generated there.

Only a gradient, or an iterate to which noise has been added, leaves the device. The same code runs on CPU tensors.
"""
