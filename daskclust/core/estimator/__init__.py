"""Common to all estimators: checks of their input, labels, seeds, spaces and results."""
