"""The client of Flower's simulation, in a module of its own: that of a script is sent by value, with its data."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import setting
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor
from torch.nn.functional import cross_entropy

app = ClientApp()


@cache
def data() -> tuple[Tensor, Tensor, Tensor]:
    """Once a process."""
    torch.set_num_threads(1)
    inputs, targets = setting.rows(Path(os.environ["PEERS_DATA"]), "train")
    return inputs, targets, setting.shares(len(targets))


@app.train()
def train(message: Message, context: Context) -> Message:
    inputs, targets, clients = data()
    own = clients[int(context.node_config["partition-id"])]
    module = setting.network()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(module.parameters(), lr=setting.STEP_SIZE)
    for _ in range(setting.STEPS):
        batch = own[torch.randperm(len(own))[: setting.BATCH]]
        optimizer.zero_grad()
        cross_entropy(module(inputs[batch]), targets[batch]).backward()
        optimizer.step()
    answer = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"num-examples": setting.STEPS * setting.BATCH}),
    }
    return Message(content=RecordDict(answer), reply_to=message)
