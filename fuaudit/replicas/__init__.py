"""Replicas: many runs of one config, side by side."""
