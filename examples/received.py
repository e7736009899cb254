"""A federation whose rows never leave their clients: a server, four hospitals, and messages between them.

    python examples/received.py FOLDER

The server knows who has how many rows, and no row. It draws batches, sends models out, and takes what comes:
hospital 2 sends no numbers in round 3, hospital 3 is late in odd rounds, hospital 1 does not answer in round 4. The run
in FOLDER records it. Replay makes the same models from what was recorded.
"""

import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from fuaudit import receive, verify
from fuaudit.plugins import Dataset

CLASSES, FEATURES, EACH, HOSPITALS = 3, 4, 12, 4
CONFIG = {
    "data": {"use": "tensors", "classes": CLASSES},
    "partition": {"use": "by-owner"},
    "model": {"use": "linear"},
    "learner": {"use": "fedavg", "rounds": 8, "cohort": 4, "steps": 4, "batch": 4, "step_size": 1.0},
    "server": [{"use": "mean"}],
    "run": {"checkpoint_every": 2, "engine": "reference"},
}


class Hospital:
    """A client: its rows, by their ids, are its own."""

    def __init__(self, number):
        generator = torch.Generator().manual_seed(number)
        self.inputs = torch.rand(EACH, FEATURES, generator=generator)
        self.targets = self.inputs[:, :CLASSES].argmax(dim=1)
        self.first = number * EACH

    def update(self, model, batches, step_size):
        """Steps of gradient descent on the batches that were drawn: the model sent out minus what comes back."""
        weight, bias = model[: CLASSES * FEATURES].view(CLASSES, FEATURES).clone(), model[CLASSES * FEATURES :].clone()
        for batch in batches:
            rows = [number - self.first for number in batch if number >= 0]
            weight.requires_grad_(), bias.requires_grad_()
            loss = cross_entropy(self.inputs[rows] @ weight.T + bias, self.targets[rows])
            slopes = torch.autograd.grad(loss, (weight, bias))
            weight, bias = ((p - step_size * s).detach() for p, s in zip((weight, bias), slopes, strict=True))
        return model - torch.cat([weight.flatten(), bias])


def what_the_server_has():
    """Test rows, and of the hospitals' rows ids and owners: zeros stand for what it does not see."""
    inputs = torch.rand(60, FEATURES, generator=torch.Generator().manual_seed(99))
    owners = torch.arange(HOSPITALS).repeat_interleave(EACH)
    unseen = torch.zeros(len(owners), FEATURES), torch.zeros(len(owners), dtype=torch.int64)
    return Dataset(*unseen, inputs, inputs[:, :CLASSES].argmax(dim=1), CLASSES, owners=owners)


def train(folder, data):
    """The server: it asks which round is next, sends, and takes what comes."""
    hospitals = [Hospital(number) for number in range(HOSPITALS)]
    late = []
    with receive(CONFIG, folder, data) as reception:
        print("commitment", reception.commitment)
        while (at := reception.round) is not None:
            came = [*late]
            late.clear()
            for place, client in enumerate(at.clients):
                update = hospitals[client].update(at.model, at.batches[place], at.step_size)
                if client == 2 and at.number == 3:
                    update = update / 0
                if client == 1 and at.number == 4:
                    continue
                (late if client == 3 and at.number % 2 else came).append((at.number, client, update))
            for number, client, update in came:
                if refused := reception.receive(number, client, update):
                    print(f"round {at.number}: hospital {refused.client} is rejected, {refused.why}")
            reception.advance()
        return reception.close()


if __name__ == "__main__":
    rows = what_the_server_has()
    run = train(Path(sys.argv[1]), rows)
    print("test accuracy", run.metrics[-1]["test_accuracy"])
    found = verify(run, data=rows, save=False)
    print(*(f"{one.audit}: {one.verdict}. {one.shows}" for one in found.findings if one.audit == "replay"))
