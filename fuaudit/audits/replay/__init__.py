"""Level 2: the model is what its plan makes of the retained data. Replayed whole or in stretches."""
