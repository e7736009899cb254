"""Privacy budgets: exact laws of one round, their composition, and the bounds that papers print beside them."""
