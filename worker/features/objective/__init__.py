"""Solver of models that are learned by objective perturbation (`lethe/features/objective`)."""
