"""Statistics: tests, bets, bounds and power on arrays of numbers. Knows nothing of runs or of learning."""
