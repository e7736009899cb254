"""ConSpar: the exact law of one round, accounts of many, and the bounds that the paper prints beside them."""
