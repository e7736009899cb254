"""Untrained: who takes part in a round and trains on nothing. Her row tells nothing of data, so it hides nobody.

She has no samples, or her batches of the round are empty. Where steps have noise her row is noise, which is all that it
hides another one behind. The plan tells who it is. In a sealed view, which has none, nobody is known: :func:`all_told`
says whether there can be some.
"""

from __future__ import annotations

from fuaudit.plans.availability import always_draws
from fuaudit.runs.run import Run


def untrained(run: Run, number: int) -> frozenset[int]:
    """The clients of a round who do not count in its sums, see :attr:`fuaudit.training.rounds.Cohort.trained`.

    Where steps have noise and batches can be empty all count, also who has no samples: her row is noise.
    """
    if run.sealed or run.exchange.counts_all(run.law):
        return frozenset()
    return _without_samples(run, number) if run.exchange.trains_all(run.law) else hiding_nobody(run, number)


def hiding_nobody(run: Run, number: int) -> frozenset[int]:
    """The clients of a round whose rows tell nothing of data: they have no samples, or drew none, with noise or not."""
    if run.sealed or always_draws(run.law):
        return _without_samples(run, number)
    cohort = run.participation["cohorts"][number - 1]
    return _without_samples(run, number) | {client for client in cohort if not _draws_some(run, number, client)}


def _without_samples(run: Run, number: int) -> frozenset[int]:
    if run.sealed:
        return frozenset()
    samples = run.populations[-1].samples
    return frozenset(client for client in run.participation["cohorts"][number - 1] if not samples.get(client))


def _draws_some(run: Run, number: int, client: int) -> bool:
    """Whether a batch of hers in a round is not empty. Where the server sees sums nobody takes part twice."""
    return any(run.plan.batch(number, step, client, 0) for step in range(1, run.law.steps + 1))


def all_told(run: Run) -> bool:
    """Whether a run tells of everybody who is without samples in a round.

    A sealed view tells of nobody. It is enough where there is nobody: training deals samples to all, no request named
    samples, and each participant with samples draws some.
    """
    named = any(request.samples for request in run.requests)
    return not run.sealed or (always_draws(run.law) and not named)
