"""The commands of ``daskclust``, one module each."""
