"""Runs on a GPU: rows reside on one device, all steps run there, with noise that is generated there.

Only a gradient, or an iterate with its noise added, leaves the device. The same code runs on CPU tensors.
"""
