"""Asking a person for labels: files of questions and answers, a report, a page in the browser."""
