"""Reports of a fit: one HTML file that needs nothing else, to look at and to pass on."""

from daskclust.app.report._report import write_report, write_table_report

__all__ = ["write_report", "write_table_report"]
