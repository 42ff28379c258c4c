"""Starting centers: sampled or deterministic; and the cost of a cluster."""
