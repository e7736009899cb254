"""A federation of two rounds for robust rules, attacks and transports: from training to a prune.

Every rule with every attack, in the clear and behind secure-sum, by consensus; sparse-sum with every attack; top-k with
every attack, and with every rule.
"""

from itertools import product

import pytest
import torch
from tests_support import AUDIT_KEY, NEEDED, secret

from fuaudit import train, unlearn, verify
from fuaudit.plans import Request
from fuaudit.testing.tiny import tiny_config, tiny_dataset
from fuaudit.workflow.prune import prune

CLIENTS, BAD, HONEST = 10, 4, 7
LEARNER = {"use": "fedrep", "rounds": 2, "cohort": CLIENTS, "steps": 1, "batch": 1, "step_size": 0.2}
MEMORY, AGREEMENT = {"use": "error-feedback"}, {"use": "consensus", "per_client": 3, "alpha": 0.5}
ROUNDED = {"use": "quantise", "clip": 1.0}
OPTIONS = {"clear": {}, "secure-sum": {"size": 2, "byzantine": 1}, "sparse-sum": {"alpha": 0.5}}
OWN = {"use": "top-k", "per_client": 6}
RULES = (
    "mean",
    "coordinate-median",
    "trimmed-mean",
    "geometric-median",
    "krum",
    "multi-krum",
    "norm-thresholding",
    "spectral-filter",
    "centered-clipping",
    "norm-clipping",
    "bucketing",
)
VALUES = "bit-flip", "alie", "ipm", "mimic", "gaussian"
ATTACKS = *VALUES, "label-flip"
PROPOSED = "same", "random", "smallest", "correct"


def chain(place, chosen, transport):
    """The client stages: one client attacks values behind the choice of coordinates, and those that all agree on.

    Nobody remembers what a sparse sum did not send: that is refused.
    """
    proposed = PROPOSED[place % len(PROPOSED)]
    values = [{"use": name, "clients": [BAD]} for name in VALUES[place : place + 1]]
    memory = [] if transport == "sparse-sum" else [MEMORY]
    if chosen == "top-k":
        return [*memory, OWN, *values, ROUNDED]
    attacked = {"use": "coordinate-attack", "clients": [BAD], "proposes": proposed}
    return [*memory, AGREEMENT, *values, attacked, ROUNDED]


def adversaries(place):
    """Who turns rows before they are committed to: the same client, where no attack on values is tried."""
    return [{"use": "label-flip", "clients": [BAD], "pairs": [[0, 1], [1, 2], [2, 0]]}][: place == len(VALUES)]


def server(rule):
    """The rule; stages that are none stand in front of one."""
    behind = {"norm-clipping": ["mean"], "bucketing": ["coordinate-median"]}.get(rule, [])
    return [{"use": name} | NEEDED.get(name, {}) for name in (rule, *behind)]


PLAIN = "clear", "secure-sum"
CASES = {
    *product(RULES, ATTACKS, PLAIN, ["consensus"]),
    *product(["mean"], ATTACKS, ["sparse-sum"], ["consensus"]),
    *product(["norm-thresholding"], ATTACKS, ["clear"], ["top-k"]),
    *((rule, ATTACKS[turn % len(ATTACKS)], PLAIN[turn % 2], "top-k") for turn, rule in enumerate(RULES)),
}


@pytest.mark.parametrize(("rule", "named", "transport", "chosen"), sorted(CASES), ids=map("-".join, sorted(CASES)))
def test_a_federation_of_two_rounds(tmp_path, quick, rule, named, transport, chosen):
    """Replayed, unlearned, pruned, verified. Who is erased is an honest client or the attacker, turn by turn."""
    data, attack = tiny_dataset(), ATTACKS.index(named)
    table = tiny_config(
        partition={"use": "iid", "clients": CLIENTS},
        learner=LEARNER,
        client=chain(attack, chosen, transport),
        adversary=adversaries(attack),
        transport={"use": transport} | OPTIONS[transport],
        server=server(rule),
    )

    def verdicts(run):
        found = verify(run, quick, data=data, key=AUDIT_KEY, save=False).findings
        return {finding.audit: str(finding.verdict) for finding in found}

    run = train(table, tmp_path / "run", data=data, secret=secret(1))
    assert verdicts(run) == FINE
    assert run.differences(data).rows.keys() == ({BAD} if adversaries(attack) else set())
    whole = run.model
    gone = (BAD, HONEST)[(RULES.index(rule) + attack) % 2]
    child = unlearn(run, "fats", Request.of([gone]), tmp_path / "child", data=data)
    assert verdicts(child) == FINE
    left = child.model
    pruned, _ = prune(child)
    assert verdicts(pruned) == FINE
    assert torch.equal(pruned.model, left)
    assert bool(pruned.model.isfinite().all())
    assert not torch.equal(pruned.model, whole)


FINE = dict.fromkeys(("integrity", "replay", "provenance", "lineage"), "PASS")
