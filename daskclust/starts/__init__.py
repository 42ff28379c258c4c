"""Starting centers: sampled, deterministic, and the cost of a cluster that a wanted number implies."""
