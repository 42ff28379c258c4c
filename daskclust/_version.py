"""The version: of the package, of models, and of checkpoints."""

__version__ = "0.2.0"
