"""What the families of estimators share: kernels, reductions, the engine, storage, validation."""
