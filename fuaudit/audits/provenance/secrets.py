"""What stages draw with: secrets of clients follow from those that were committed to, through every request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fuaudit.audits.provenance.answers import CheckResult, fails, holds, name_of, unclear
from fuaudit.commitments.identities import public_key
from fuaudit.commitments.secrets import Renewal
from fuaudit.draws import Position
from fuaudit.errors import RedactedError
from fuaudit.plans.stage_draws import keeps_draws
from fuaudit.runs.encoding import digest_of_vector
from fuaudit.runs.ledger import models_told
from fuaudit.runs.run import Run
from fuaudit.runs.tombstone import Tombstone
from fuaudit.text import counted
from fuaudit.training.setup import depended_on

OWN = {
    "apart": "Clients made their secrets by generators of their systems, and nobody else has them: no run can show it.",
    "from one secret": "Whoever has the one secret of training has those of all clients, and knows what they draw.",
}
"""What it rests on that nobody else knows what clients draw, by how their secrets were made."""


def secrets_follow(run: Run, chain: Sequence[Run | Tombstone]) -> CheckResult:
    """Each generation of secrets is made from the one before; the first was compared with the commitment on opening.

    ``chain`` is the run and its ancestors at hand, youngest first: they name the methods.
    """
    try:
        secrets = run.secrets
    except RedactedError as error:
        return unclear(str(error.args[0]))
    if secrets is None:
        return holds(f"No stage of {name_of(run)} keeps or draws anything.")
    last = len(run.requests)
    for number, context in enumerate(run.contexts[1:], 1):
        if last - number + 1 >= len(chain):
            return unclear(f"Secrets of request {number} of {name_of(run)} follow from a parent that is not at hand.")
        maker, parent = chain[last - number], chain[last - number + 1]
        renewal = Renewal(run.commitment, context, maker.info["unlearner"], parent.rounds_executed)
        known = run.exchange.draws and depended_on(run.config, run.requests[number - 1])
        # asked of the plan that is left: what an ancestor kept and was drawn anew since bears on nothing
        if known and keeps_draws(run.plan, number) and not all(map(_edits, chain[: last - number + 1])):
            text = (
                f"Rounds that {name_of(maker)} keeps depend on {known}, and were made again with the noise of before."
            )
            return fails(text)
        before, found = secrets.generations[number - 1], secrets.generations[number]
        follow = all(client in before and renewal.renewed(before[client]) == secret for client, secret in found.items())
        if not follow or renewal.renewed(secrets.shared[number - 1]) != secrets.shared[number]:
            return fails(
                f"Clients of {name_of(run)} have other secrets after request {number} than follow from before it."
            )
    text = f"The secrets of {name_of(run)} follow from those that were committed to, which were made {secrets.made}."
    return holds(text, " ".join([OWN[secrets.made], *_in_common(run)]))


def parties_follow(run: Run) -> CheckResult:
    """Keys to sign with, and chains of lots, follow from the secrets of all who are not erased."""
    try:
        secrets, lots = run.secrets, run.lots
    except RedactedError as error:
        return unclear(str(error.args[0]))
    if secrets is None:
        return holds(f"Nobody signs anything in rounds of {name_of(run)}.")
    for client, secret in secrets.generations[0].items():
        own = run.contents.own_of(client)
        if public_key(secret) != own.identity:
            return fails(
                f"Client {client} of {name_of(run)} was committed to with a key that her secret does not give."
            )
        if lots is not None and lots.chain(client).end != own.lot:
            return fails(
                f"Client {client} of {name_of(run)} was committed to with the end of another chain of lots than "
                "follows from her secret."
            )
    if b"".join(map(public_key, secrets.parties)) != run.contents.party_keys:
        return fails(f"Witness or key holder of {name_of(run)} have keys that their secrets do not give.")
    return holds(f"Keys of the parties of {name_of(run)}, and their contributions to lots, follow from their secrets.")


def noise_used_once(run: Run, chain: Sequence[Run | Tombstone]) -> CheckResult:
    """Rounds that keep their draws of stages have the models that they had: else rows changed, and the noise did not.

    A child copies the models of kept rounds, so they are equal bits on every platform. What stages draw in a round is
    of one generation, and the ancestor of that generation executed the round. Its stored models are asked, or its
    ledger where a prune left no more. ``run`` is one that no editor made: an editor makes no round.
    """
    last = len(run.requests)
    for number in run.checkpoints:
        source, _ = run.plan.latest(Position(number, run.plan.law.steps + 1))
        if not number or not 0 < last - source < len(chain):
            continue
        maker = chain[last - source]
        if _model_of(maker, number) not in (None, digest_of_vector(run.checkpoint(number)[0])):
            text = f"The model after round {number} of {name_of(run)} is another than that of {name_of(maker)}"
            return fails(f"{text}, and stages drew there what they had drawn: one noise over two models.")
    return holds(f"Rounds of {name_of(run)} that keep draws of stages keep their models.")


def _model_of(run: Run | Tombstone, number: int) -> str | None:
    """The digest of the model after a round, where a run stores it, or tells of it."""
    if isinstance(run, Run):
        return digest_of_vector(run.checkpoint(number)[0]) if number in run.checkpoints else None
    return models_told(run.ledger).get(number)


def _edits(maker: Run | Tombstone) -> bool:
    """Whether an editor made a run: it executes no round again, so its plan has the draws of before."""
    return maker.is_child and bool(maker.info["unlearner"]["kind"] == "editor")


def _in_common(run: Run) -> Iterator[str]:
    """Who was committed to with one secret, by equal digests: a sentence for each such secret."""
    owners: dict[bytes, list[int]] = {}
    for client in run.contents.clients:
        owners.setdefault(run.contents.own_of(client).secret, []).append(client)
    for first, *others in owners.values():
        if others:
            yield f"Client {first} has one secret with {counted(len(others), 'other')}, client {others[0]} among them."
