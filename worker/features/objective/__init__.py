"""Solver for models trained by objective perturbation (`lethe/features/objective`)."""
