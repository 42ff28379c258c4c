"""Estimators: parameters, docstrings and the outer loops."""
