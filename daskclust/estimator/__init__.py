"""What every estimator shares: checks of its input, labels, seeds, spaces and results."""
