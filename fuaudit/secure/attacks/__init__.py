"""Attacks on secure sums: what parties who collude could try on a small opening, each with the answer that it wants.

An attack that gets the answer where it must not refutes a suite. One that gets nothing where it must succeed shows that
the attack is broken, so that its failure elsewhere says nothing. ``table.py`` has both lists.
"""
