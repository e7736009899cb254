"""Apple's pfl: federated averaging in its simulated backend, in one process."""

from __future__ import annotations

import time

import setting
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class Network(nn.Module):
    """The network, with the loss and the metrics that pfl asks a model for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = setting.network()

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.layers(inputs)
        return scores

    def loss(self, inputs: Tensor, targets: Tensor, eval: bool = False) -> Tensor:
        self.eval() if eval else self.train()
        return cross_entropy(self(inputs), targets)

    def metrics(self, inputs: Tensor, targets: Tensor, eval: bool = True) -> dict[str, float]:
        return {}


def main() -> None:
    root, out, rounds = setting.given()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs, targets = setting.rows(root, "train")
    clients = setting.shares(len(targets))

    def of_client(client: int) -> PyTorchTensorDataset:
        drawn = clients[client][torch.randperm(clients.shape[1])[: setting.STEPS * setting.BATCH]]
        return PyTorchTensorDataset((inputs[drawn], targets[drawn]))

    module = Network()
    sampler = get_user_sampler("random", list(range(setting.CLIENTS)))
    data = FederatedDataset(of_client, sampler)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    training = NNTrainHyperParams(
        local_num_epochs=None,
        local_num_steps=setting.STEPS,
        local_learning_rate=setting.STEP_SIZE,
        local_batch_size=setting.BATCH,
    )
    todo = NNAlgorithmParams(rounds, rounds + 1, setting.COHORT, val_cohort_size=None)
    begun = time.perf_counter()
    backend = SimulatedBackend(data, data)
    FederatedAveraging().run(todo, backend, model, training, NNEvalHyperParams(local_batch_size=None))
    setting.told(out, module.layers, root, time.perf_counter() - begun)


if __name__ == "__main__":
    main()
