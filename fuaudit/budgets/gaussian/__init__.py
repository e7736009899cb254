"""Gaussian noise on clipped rows: accounts of many rounds, what a target needs, and who sees how much noise."""
