"""Lineage: nothing beside the run, in its files or among its rows holds what was erased."""
