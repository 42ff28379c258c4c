"""Constrained and sparse k-means: one iteration, composed of rules.

:mod:`rows` are the constrained rows, which :mod:`soft` or :mod:`hard` (with
:mod:`groups`) assigns; :mod:`iteration` assigns the others and moves the centers;
:mod:`sparse` and :mod:`metric_learning` weight the features in between.
:mod:`neighborhoods` are starts, and :mod:`base` fits an estimator by all of this.
"""
