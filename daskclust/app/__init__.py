"""The command line, the report and the labeling page."""
