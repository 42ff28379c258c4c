"""Label spreading and spectral clustering on graphs of prototypes."""

__all__ = ["label_spreading", "spectral_clustering"]
