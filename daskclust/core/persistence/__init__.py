"""Fitted models on disk: saved attributes, and the file format."""
