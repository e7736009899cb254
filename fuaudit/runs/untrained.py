"""Untrained: who takes part in a round and does not train in it. Her row tells nothing of data, so it hides nobody.

She has no samples, or her batches of the round are empty and her steps have no noise. The plan tells who it is. In a
sealed view, which has none, nobody is known: :func:`all_told` says whether there can be some.
"""

from __future__ import annotations

from fuaudit.runs.run import Run


def untrained(run: Run, number: int) -> frozenset[int]:
    """The clients of a round who do not count in its sums, see :attr:`fuaudit.training.rounds.Cohort.trained`.

    Where steps have noise and batches can be empty all count, also who has no samples: her row is noise.
    """
    if run.sealed or run.exchange.counts_all(run.law):
        return frozenset()
    cohort, samples = run.participation["cohorts"][number - 1], run.populations[-1].samples
    without = {client for client in cohort if not samples.get(client)}
    if not run.exchange.trains_all(run.law):
        without |= {client for client in cohort if not _draws_some(run, number, client)}
    return frozenset(without)


def _draws_some(run: Run, number: int, client: int) -> bool:
    """Whether a batch of hers in a round is not empty. Where the server sees sums nobody takes part twice."""
    return any(run.plan.batch(number, step, client, 0) for step in range(1, run.law.steps + 1))


def hiding_nobody(run: Run, number: int) -> frozenset[int]:
    """Those, and whoever has no samples: a row that is noise alone may count, and hides no more than its noise does."""
    if run.sealed:
        return frozenset()
    return untrained(run, number) | run.emptied.intersection(run.participation["cohorts"][number - 1])


def all_told(run: Run) -> bool:
    """Whether a run tells of everybody who is without samples in a round.

    A sealed view tells of nobody. It is enough where there is nobody: training deals samples to all, no request named
    samples, and each participant with samples trains.
    """
    named = any(request.samples for request in run.requests)
    return not run.sealed or (run.exchange.trains_all(run.law) and not named)
