"""Formats: values as bytes and back, in one form each, and files that are read with care. Knows no run."""
