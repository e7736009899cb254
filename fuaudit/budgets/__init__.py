"""Privacy budgets: an account a mechanism; composition and the statement with every epsilon are the same for all."""
