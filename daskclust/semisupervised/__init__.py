"""Label spreading and spectral clustering on graphs of prototypes."""
