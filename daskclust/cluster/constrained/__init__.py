"""Constrained and sparse k-means: one iteration, composed of rules.

:mod:`iteration` holds the constrained rows, assigns all others and moves the centers;
:mod:`assignment` assigns the constrained ones; :mod:`updates` is what follows; :mod:`base` finds
starts and fits an estimator by all of this.
"""
