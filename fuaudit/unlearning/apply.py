"""Applying an unlearner: rewriting a plan, or editing a model, with its declarations enforced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import cross_entropy

from fuaudit.data.dataset import retained_rows
from fuaudit.declared import says
from fuaudit.errors import FuauditError, PluginError, UsageError, line_of
from fuaudit.options import option_values
from fuaudit.plans import Plan, Population, Request
from fuaudit.plans.stacked import LazySchedule
from fuaudit.plans.stage_draws import PlannedDraws
from fuaudit.plans.veil import veiled
from fuaudit.registry import Entry
from fuaudit.training.engines.protocol import threads_restored
from fuaudit.training.execute import RoundState, client_problem, execute, require_finite
from fuaudit.training.setup import Setup
from fuaudit.unlearning.protocol import Context, Message, is_editor


def unlearner_record(entry: Entry, unlearner: Any) -> dict[str, Any]:
    """What a run records of the unlearner: name, options, distribution and version."""
    return {
        "use": entry.name,
        "options": option_values(unlearner),
        "kind": "editor" if is_editor(unlearner) else "rewriter",
        "distribution": entry.distribution,
        "version": entry.version,
        "guarantee": unlearner.guarantee,
        "cite": unlearner.cite,
    }


def edited(
    ready: Setup,
    old: Plan,
    new: Plan,
    unlearner: Any,
    name: str,
    model: Tensor,
    round_models: Mapping[int, Tensor],
    target: tuple[Request, Population] | None = None,
    draws: Sequence[PlannedDraws] = (),
) -> tuple[Tensor, list[Message]]:
    """The model that an editor makes from ``model``, and the messages it cost.

    ``old`` is the plan of the run it edits, ``new`` the same draws over the retained population, whose last
    source makes the editor's own draws. ``target`` is the request, with a population that holds what it names;
    by default what ``old`` has and ``new`` has not. An audit gives it for a run that never had the target.
    ``draws`` are those of the stages under ``new``; the last generation is used while the editor trains further. By
    default the editor's own flat source is.

    Raises:
        PluginError: the editor raised, touched what it had not declared, or returned no model.
    """
    request, whole = target or (_last_request(old, new), old.retained)
    retained, fresh = new.retained, new.sources[-1]
    bytes_of_model = model.numel() * model.element_size()
    solver = ready.procedure.solver
    down, up = says(solver, "downloads") + ready.procedure.exchange.downloads, says(solver, "uploads")

    trained: list[int] = []
    messages: list[Message] = []

    def send(sender: str, receiver: str, times: int = 1) -> None:
        messages.extend([Message(sender, receiver, bytes_of_model)] * times)

    def further(vector: Tensor, rounds: int) -> Tensor:
        _require_plain(name, vector)
        # rounds go on counting over calls, so that no call repeats the draws of another; they are counted before
        # anything is drawn, because a call that fails has used its rounds too
        spent = sum(trained)
        trained.append(rounds)
        plan = Plan.fresh(replace(new.law, rounds=spent + rounds), retained, fresh)  # type: ignore[type-var]
        schedule = LazySchedule([plan])
        own = PlannedDraws(plan, draws[0].generations[-1:]) if draws else PlannedDraws.flat(plan, [fresh])
        with _differentiable():
            problem = ready.client_problem(retained)
            state = ready.procedure.initial_memory(len(retained.clients), ready.device)
            start = round_state = RoundState.of_run(vector.detach().clone(), state, ready.device)
            for round_number, round_state in execute(
                ready.procedure, problem, retained, schedule, start, ready.engine, spent + 1, (own,)
            ):
                require_finite(round_state, round_number)
                for client in [f"client {c}" for c in schedule.round(round_number).cohorts[0].tolist() if c >= 0]:
                    send("server", client, down)
                    send(client, "server", up)
        return round_state.vectors[0].cpu()

    def target_gradient(vector: Tensor) -> Tensor:
        _require_plain(name, vector)
        send("server", "target")
        with _differentiable():
            gradient = _target_gradient(ready, whole, request, vector)
        send("target", "server")
        return gradient

    every: dict[str, Callable[..., Any]] = {
        "model": model.clone,
        "plan": lambda: veiled(old),
        "round models": lambda: {round_number: vector.clone() for round_number, vector in round_models.items()},
        "server data": lambda: (ready.dataset.test_inputs.clone(), ready.dataset.test_targets.clone()),
        "retained clients": further,
        "target": target_gradient,
    }
    # the table is made before the editor runs, of what it declares: nothing else can be reached through the context
    declared = unlearner.needs | unlearner.participants
    providers = {word: give for word, give in every.items() if word in declared}
    given = Request(request.clients, request.samples), retained.twin  # what an editor writes into, nobody else reads
    context = Context(*given, f"unlearner {name!r}", providers)
    try:
        with threads_restored():
            torch.set_num_threads(1)  # sums over several threads have bits that depend on their number
            vector = unlearner.edit(context)
    except FuauditError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"unlearner {name!r} raised while editing the model: {error!r}{line_of(unlearner, error)}"
        ) from error
    # a class of its own could answer for other tensors, wherever it meets them
    if type(vector) not in (Tensor, Parameter) or vector.shape != model.shape or not bool(torch.isfinite(vector).all()):
        what = f"did not return a finite model of shape {tuple(model.shape)}, a torch.Tensor and no class of its own"
        kind, shape = type(vector), getattr(vector, "shape", None)
        came = f"{kind.__module__}.{kind.__qualname__}" + ("" if shape is None else f" of shape {tuple(shape)}")
        raise PluginError(f"unlearner {name!r} {what}, but {came}")
    return vector.detach().to(model.dtype).cpu(), messages


@contextmanager
def _differentiable() -> Iterator[None]:
    """Gradients are recorded within it: an editor may ask for work on clients where it has switched them off."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _last_request(old: Plan, new: Plan) -> Request:
    clients = set(old.retained.clients) - set(new.retained.clients)
    left = new.retained.owner
    samples = [s for s, owner in old.retained.owner.items() if s not in left and owner not in clients]
    return Request.of(clients, samples)


def _require_plain(name: str, vector: object) -> None:
    """Raises PluginError where an editor gives a tensor of a class of its own: that one would see rows beside it."""
    if type(vector) not in (Tensor, Parameter):
        kind = type(vector).__name__
        raise PluginError(f"unlearner {name!r} gave a {kind} for a model, and not a torch.Tensor")


def _target_gradient(ready: Setup, whole: Population, request: Request, vector: Tensor) -> Tensor:
    """The gradient of the mean loss on the erased rows; UsageError when they are no longer at hand."""
    rows = sorted({*request.samples, *(s for c in request.clients for s in whole.samples[c])})
    if ready.dataset.absent.intersection(rows):
        raise UsageError("the erased data is not at hand, so the target cannot take part")
    problem = client_problem(ready.procedure, retained_rows(ready.dataset, whole), whole, ready.device)
    leaf = vector.detach().to(ready.device, copy=True).requires_grad_()
    parameters = dict(zip(ready.procedure.layout.names, ready.procedure.layout.split(leaf), strict=True))
    loss = cross_entropy(
        torch.func.functional_call(problem.module, parameters, (problem.inputs[rows],)), problem.targets[rows]
    )
    return torch.autograd.grad(loss, leaf)[0].cpu()
