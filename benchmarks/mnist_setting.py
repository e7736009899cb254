"""The setting of FATS on MNIST as law and population, for benchmarks without rows; an earlier fuaudit reads it too."""

from __future__ import annotations

from fuaudit.plans import Population, UniformLaw

LAW = UniformLaw(rounds=30, cohort_size=5, steps=10, batch_size=10)
POPULATION = Population({c: tuple(range(200 * c, 200 * (c + 1))) for c in range(300)})
