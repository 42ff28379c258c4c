"""Constrained and sparse k-means: one iteration, composed of rules.

:mod:`rows` are the constrained rows, which :mod:`soft` or :mod:`hard` (with
:mod:`groups`) assigns; :mod:`iteration` assigns the others and moves the centers;
:mod:`plain`, :mod:`sparse` and :mod:`metric_learning` say what follows.
:mod:`neighborhoods` are starts, and :mod:`base` fits an estimator by all of this.
"""
