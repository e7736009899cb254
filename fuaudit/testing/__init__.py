"""For authors of plugins: contracts to check against, proofs by enumeration, and Hypothesis strategies.

The core never imports this package. ``check_unlearner``, ``check_aggregator``, ``check_client_stage``,
``check_agreement``, ``check_adversary``, ``check_byzantine``, ``check_transport``, ``check_solver``, ``check_law``,
``check_audit``, ``check_model`` and ``check_dataset`` raise an AssertionError that lists all that is wrong;
``audit_account`` sets an account of privacy beside what a stage let out;
``exactness`` proves or refutes a rewriter on one small federation. The strategies live in
:mod:`fuaudit.testing.strategies`.
"""

from fuaudit.proofs.exactness import Exactness, adaptive_exactness, exactness
from fuaudit.proofs.toys import Toy, federation
from fuaudit.testing import strategies
from fuaudit.testing.accounts import AuditedAccount, audit_account
from fuaudit.testing.adversaries import check_adversary
from fuaudit.testing.aggregators import check_aggregator
from fuaudit.testing.agreements import check_agreement
from fuaudit.testing.audits import check_audit
from fuaudit.testing.byzantine import check_byzantine
from fuaudit.testing.client_stages import check_client_stage
from fuaudit.testing.datasets import check_dataset
from fuaudit.testing.laws import check_law
from fuaudit.testing.models import check_model
from fuaudit.testing.solvers import check_solver
from fuaudit.testing.strategies import federations, laws, plans, requests, streams
from fuaudit.testing.transports import check_transport
from fuaudit.testing.unlearners import check_unlearner

__all__ = [
    "AuditedAccount",
    "Exactness",
    "Toy",
    "adaptive_exactness",
    "audit_account",
    "check_adversary",
    "check_aggregator",
    "check_agreement",
    "check_audit",
    "check_byzantine",
    "check_client_stage",
    "check_dataset",
    "check_law",
    "check_model",
    "check_solver",
    "check_transport",
    "check_unlearner",
    "exactness",
    "federation",
    "federations",
    "laws",
    "plans",
    "requests",
    "strategies",
    "streams",
]
