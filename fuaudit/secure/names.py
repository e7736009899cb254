"""What suites are called."""

EXACT = ("bfv+mask", "bfv", "mask", "plain")
"""Those that a training can use."""

SCARY = "ckks-demo-whose-sums-give-the-key-away"
"""CKKS, to be attacked."""
