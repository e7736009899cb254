"""Secure sums: whole numbers of a few clients are added up, and nobody is shown one client's; knows no model."""
