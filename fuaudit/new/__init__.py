"""New: packages with one plugin to begin with, filled in from a template for each kind."""
