"""Pairwise constraints on one machine: pairs, the ordered pass, and groups."""
