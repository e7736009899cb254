"""Data: datasets, who owns which sample, and what is left of it after a request."""

from fuaudit.data.dataset import Dataset
from fuaudit.data.partition import Partition

__all__ = ["Dataset", "Partition"]
