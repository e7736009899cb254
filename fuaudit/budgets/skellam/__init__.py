"""Skellam noise on whole numbers: what rounding adds, accounts of many rounds, and who sees how much noise."""
