"""Kernels of starting centers: D^2 sampling, densities, weighted draws."""
