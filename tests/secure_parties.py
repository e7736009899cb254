"""The parties of one secure sum, each by itself, for tests that stand between them."""

import numpy as np

from fuaudit.secure.attacks import parties
from fuaudit.secure.attacks.opening import Opening


def rows_of(clients, columns, bits=12, seed=1):
    """Rows (s, c) over the whole range."""
    largest = (1 << bits - 1) - 1
    return np.random.Generator(np.random.Philox(seed)).integers(-largest, largest + 1, (clients, columns))


def opening_of(clients, columns, noise=0, **others):
    """An opening to attack, of rows over half of the range."""
    more = np.random.Generator(np.random.Philox(2)).integers(-noise, noise + 1, (2, clients, columns))
    return Opening(rows_of(clients, columns, 11), more, **others)


class Parties(parties.Parties):
    """The same, with one name for the clients of any suite."""

    def __init__(self, suite, rows, **others):
        super().__init__(suite, rows, **others)
        if suite == "mask":
            self.clients = self.mask_clients

    def masked(self, number, terms=None):
        return self.mask_client(number, terms)

    def sent(self):
        """All messages up to the rows."""
        return self.masked_rows() if self.terms.suite == "mask" else super().sent()
