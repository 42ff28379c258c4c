"""Fitted models on disk: what of them is saved, and the file format."""
