"""Plans: which clients, which samples, in which step. Combinatorial, cheap, no gradient."""

from fuaudit.plans.availability import AvailabilityLaw
from fuaudit.plans.law import Law, UniformLaw, WeightedLaw
from fuaudit.plans.plan import Plan, Segment
from fuaudit.plans.population import Population, Request

__all__ = [
    "AvailabilityLaw",
    "Law",
    "Plan",
    "Population",
    "Request",
    "Segment",
    "UniformLaw",
    "WeightedLaw",
]
