"""Reports of a fit: one HTML file without external resources."""

from daskclust.app.report._report import write_report, write_table_report

__all__ = ["write_report", "write_table_report"]
