"""Level 2: the model is what its plan makes of the retained data. Replayed whole, in stretches, and under stress."""
