"""Code that all estimators share: checks of input, labels, seeds, metrics and the fit."""
