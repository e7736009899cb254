"""Two-sample tests over repeated runs: by betting, in batches, their power, and the bounds they allow."""
