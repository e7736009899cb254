"""Flower's simulation: FedAvg over virtual nodes, two actors of one core."""

from __future__ import annotations

import os
import time

import setting
import torch
from flower_client import app as client
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


def main() -> None:
    root, out, rounds = setting.given()
    os.environ["PEERS_DATA"] = str(root)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, server = setting.network(), ServerApp()
    spent: list[float] = []

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        begun = time.perf_counter()
        strategy = FedAvg(fraction_train=setting.COHORT / setting.CLIENTS, fraction_evaluate=0.0)
        result = strategy.start(grid, ArrayRecord(module.state_dict()), num_rounds=rounds)
        module.load_state_dict(result.arrays.to_torch_state_dict())
        spent.append(time.perf_counter() - begun)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server, client, setting.CLIENTS, backend_config=resources)
    setting.told(out, module, root, spent[0])


if __name__ == "__main__":
    main()
