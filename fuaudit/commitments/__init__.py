"""Commitments: what is fixed before training: keys, and what every row holds."""
