"""Repeated runs of a small network in JAX: one compiled function over runs, rounds, clients and steps.

    python repeated_jax.py WORK.npz OUT.npz

The work has rows ``(n, features)`` and classes ``(n,)``, initial models ``(R, d)`` in the layout of the tool, and
plans: row numbers ``(R, rounds, clients, steps, batch)``. It is done once, which compiles it, then again for two
seconds; the median counts.
"""

from __future__ import annotations

import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

PATIENCE = 2.0
ABREAST = 32
"""Runs at once: more of them leave the cache."""


def network(vector: Array, inputs: Array) -> Array:
    """One hidden layer of 32 units behind 64 features, 10 classes."""
    first, rest = vector[: 32 * 64].reshape(32, 64), vector[32 * 64 :]
    hidden = jnp.maximum(inputs @ first.T + rest[:32], 0)
    return hidden @ rest[32 : 32 + 320].reshape(10, 32).T + rest[352:]


def main() -> None:
    path, out = sys.argv[1:3]
    work = np.load(path)
    inputs, targets, step = jnp.asarray(work["inputs"]), jnp.asarray(work["targets"]), float(work["step_size"])

    def loss(vector: Array, rows: Array) -> Array:
        scores = jax.nn.log_softmax(network(vector, inputs[rows]))
        return -jnp.take_along_axis(scores, targets[rows][:, None], axis=1).mean()

    def client(vector: Array, batches: Array) -> Array:
        return jax.lax.scan(lambda now, rows: (now - step * jax.grad(loss)(now, rows), None), vector, batches)[0]

    def one_round(vector: Array, batches: Array) -> tuple[Array, None]:
        return jax.vmap(client, (None, 0))(vector, batches).mean(0), None

    @jax.jit
    def runs(vectors: Array, batches: Array) -> Array:
        return jax.lax.map(lambda run: jax.lax.scan(one_round, *run)[0], (vectors, batches), batch_size=ABREAST)

    vectors, batches = jnp.asarray(work["vectors"]), jnp.asarray(work["batches"])
    models = runs(vectors, batches).block_until_ready()
    seconds: list[float] = []
    while sum(seconds) < PATIENCE:
        begun = time.perf_counter()
        models = runs(vectors, batches).block_until_ready()
        seconds.append(time.perf_counter() - begun)
    np.savez(out, models=np.asarray(models), seconds=statistics.median(seconds) / len(vectors))


if __name__ == "__main__":
    main()
