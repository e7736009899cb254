"""Federated averaging as a user writes it in PyTorch, on one core: trains, tests once, writes its model."""

from __future__ import annotations

import time

import setting
import torch
from torch.nn.functional import cross_entropy


def main() -> None:
    root, out, rounds = setting.given()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs, targets = setting.rows(root, "train")
    clients = setting.shares(len(targets))
    module = setting.network()
    begun = time.perf_counter()
    sent = {name: value.clone() for name, value in module.state_dict().items()}
    for _ in range(rounds):
        total = {name: torch.zeros_like(value) for name, value in sent.items()}
        for client in torch.randperm(setting.CLIENTS)[: setting.COHORT]:
            module.load_state_dict(sent)
            optimizer = torch.optim.SGD(module.parameters(), lr=setting.STEP_SIZE)
            for _ in range(setting.STEPS):
                batch = clients[client][torch.randperm(clients.shape[1])[: setting.BATCH]]
                optimizer.zero_grad()
                cross_entropy(module(inputs[batch]), targets[batch]).backward()
                optimizer.step()
            for name, value in module.state_dict().items():
                total[name] += value / setting.COHORT
        sent = {name: value.clone() for name, value in total.items()}
    module.load_state_dict(sent)
    setting.told(out, module, root, time.perf_counter() - begun)


if __name__ == "__main__":
    main()
