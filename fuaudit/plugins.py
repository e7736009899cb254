"""What a plugin is written with: ``from fuaudit.plugins import Plan, Request, exact_under``. See docs/plugin-guide.md.

Authors of plugins import from here alone. Each name is looked up when it is first used, so importing this module loads
neither torch nor NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuaudit.budgets.skellam.law import Fitting, fitting
    from fuaudit.data import Dataset
    from fuaudit.data.adversaries import Adversary
    from fuaudit.draws import END, START, Address, Draws, Keyed, Labelled, Position, Purpose, Stream
    from fuaudit.draws.labelled import MOST_BOUND
    from fuaudit.errors import EvidenceError, PluginError, UsageError
    from fuaudit.plans import (
        AvailabilityLaw,
        Law,
        Plan,
        Population,
        Request,
        Segment,
        UniformLaw,
        WeightedLaw,
        exact_laws,
    )
    from fuaudit.plans.availability import CLOSED
    from fuaudit.plans.law import PlanDraws
    from fuaudit.plans.participation import Participations
    from fuaudit.proofs.exactness import Exactness, adaptive_exactness, exactness
    from fuaudit.proofs.toys import federation
    from fuaudit.runs.run import Run
    from fuaudit.secure.suites import Books, Suite
    from fuaudit.secure.terms import coordinates_digest
    from fuaudit.testing import (
        check_adversary,
        check_aggregator,
        check_agreement,
        check_audit,
        check_byzantine,
        check_client_stage,
        check_dataset,
        check_law,
        check_model,
        check_solver,
        check_transport,
        check_unlearner,
        strategies,
    )
    from fuaudit.training.contracts import (
        Agreement,
        Buffered,
        Byzantine,
        ClientStage,
        Delivery,
        Limited,
        Securable,
        Secured,
        Summable,
        Transport,
    )
    from fuaudit.training.dropouts import Dropouts
    from fuaudit.training.events import (
        COORDINATES,
        COORDINATES_OUTSIDE,
        COORDINATES_TWICE,
        TOO_MANY_COORDINATES,
        VALUES,
        Answered,
        Rejected,
        Released,
        Sent,
        Summed,
        Suspected,
    )
    from fuaudit.training.exchange import Exchange
    from fuaudit.training.grid import Grid, grid_of, whole_numbers
    from fuaudit.training.learner import PLAIN, Learner, UniformLearner, require_step_sizes
    from fuaudit.training.rounds import Cohort, RoundContext, State, StateShape, rows_of, with_rows
    from fuaudit.training.server_step import ServerStep
    from fuaudit.training.solvers import Outcome, Sgd, Solver, Steps
    from fuaudit.training.stages import Mean, Momentum, SizeWeighted, Stage, Stateless, mean, weighted_sum
    from fuaudit.unlearning import EVERY_LAW, Context, Editor, Rewriter, Unlearner, exact_under
    from fuaudit.unlearning.faults import Facts, KnownFault, MemoryKept, WrongRelative
    from fuaudit.verification.case import Case
    from fuaudit.verification.claims import Claim
    from fuaudit.verification.figure import Figure
    from fuaudit.verification.finding import Control, Finding, ResidualCopy, Subject, Verdict

__all__ = [
    "CLOSED", "COORDINATES", "COORDINATES_OUTSIDE", "COORDINATES_TWICE", "END", "EVERY_LAW", "MOST_BOUND", "PLAIN",
    "START", "TOO_MANY_COORDINATES", "VALUES", "Address", "Adversary", "Agreement", "Answered", "AvailabilityLaw",
    "Books", "Buffered", "Byzantine", "Case", "Claim", "ClientStage", "Cohort", "Context", "Control", "Dataset",
    "Delivery", "Draws", "Dropouts", "Editor", "EvidenceError", "Exactness", "Exchange", "Facts", "Figure",
    "Finding", "Fitting", "Grid", "Keyed", "KnownFault", "Labelled", "Law", "Learner", "Limited", "Mean",
    "MemoryKept", "Momentum", "Outcome", "Participations", "Plan", "PlanDraws", "PluginError", "Population",
    "Position", "Purpose", "Rejected", "Released", "Request", "ResidualCopy", "Rewriter", "RoundContext", "Run",
    "Securable", "Secured", "Segment", "Sent", "ServerStep", "Sgd", "SizeWeighted", "Solver", "Stage", "State",
    "StateShape", "Stateless", "Steps", "Stream", "Subject", "Suite", "Summable", "Summed", "Suspected", "Transport",
    "UniformLaw", "UniformLearner", "Unlearner", "UsageError", "Verdict", "WeightedLaw", "WrongRelative",
    "adaptive_exactness", "check_adversary", "check_aggregator", "check_agreement", "check_audit",
    "check_byzantine", "check_client_stage", "check_dataset", "check_law", "check_model", "check_solver",
    "check_transport", "check_unlearner", "coordinates_digest", "exact_laws", "exact_under", "exactness",
    "federation", "fitting", "grid_of", "mean", "require_step_sizes", "rows_of", "strategies", "weighted_sum",
    "whole_numbers", "with_rows",
]  # fmt: skip

_HOMES = {
    "budgets.skellam.law": "Fitting fitting",
    "data": "Dataset",
    "data.adversaries": "Adversary",
    "draws": "END START Address Draws Keyed Labelled Position Purpose Stream",
    "errors": "EvidenceError PluginError UsageError",
    "plans": "AvailabilityLaw Law Plan Population Request Segment UniformLaw WeightedLaw",
    "plans.availability": "CLOSED",
    "plans.law": "PlanDraws",
    "plans.participation": "Participations",
    "proofs.exactness": "Exactness adaptive_exactness exactness",
    "proofs.toys": "federation",
    "runs.run": "Run",
    "testing": "check_adversary check_aggregator check_agreement check_audit check_byzantine check_client_stage "
    "check_dataset check_law check_model check_solver check_transport check_unlearner",
    "secure.suites": "Books Suite",
    "secure.terms": "coordinates_digest",
    "draws.labelled": "MOST_BOUND",
    "training.contracts": "Agreement Buffered Byzantine ClientStage Delivery Limited Securable Secured Summable "
    "Transport",
    "training.dropouts": "Dropouts",
    "training.events": "COORDINATES COORDINATES_OUTSIDE COORDINATES_TWICE TOO_MANY_COORDINATES VALUES Answered "
    "Rejected Released Sent Summed Suspected",
    "training.exchange": "Exchange",
    "training.grid": "Grid grid_of whole_numbers",
    "training.learner": "PLAIN Learner UniformLearner require_step_sizes",
    "training.rounds": "Cohort RoundContext State StateShape rows_of with_rows",
    "training.server_step": "ServerStep",
    "training.solvers": "Outcome Sgd Solver Steps",
    "training.stages": "Mean Momentum SizeWeighted Stage Stateless mean weighted_sum",
    "unlearning": "EVERY_LAW Context Editor Rewriter Unlearner exact_under",
    "unlearning.faults": "Facts KnownFault MemoryKept WrongRelative",
    "verification.case": "Case",
    "verification.claims": "Claim",
    "verification.figure": "Figure",
    "verification.finding": "Control Finding ResidualCopy Subject Verdict",
}
"""Where the names are defined, below this module."""

_MODULES = {"exact_laws": "fuaudit.plans.exact_laws", "strategies": "fuaudit.testing.strategies"}
"""Names that are modules."""

_HOME = {name: f"fuaudit.{home}" for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fuaudit.plugins' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
