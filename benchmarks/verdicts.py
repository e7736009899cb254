"""Verdicts on digits for keys chosen in advance: python benchmarks/verdicts.py [--keys 10] [--json OUT].

Every run has its own master secret and audit key, derived from its number; the target is client 0, fixed in
advance. Prints one row for each partition and unlearner: how often each verdict was given, and after how many
pairs the untouched control was rejected.
"""

import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fuaudit import train, unlearn, verify
from fuaudit.commitments.keys import derive
from fuaudit.plans import Request

ROOT = b"fuaudit: verdicts on digits, v1!"
PARTITIONS: dict[str, dict[str, object]] = {
    "one client holds a class": {"use": "one-holder", "clients": 20, "label": 9},
    "IID": {"use": "iid", "clients": 20},
}
UNLEARNERS = ("noop", "fats", "retrain", "finetune")


def config(partition: dict[str, object]) -> dict[str, object]:
    return {
        "data": {"use": "digits"},
        "partition": partition,
        "model": {"use": "mlp", "hidden": [32]},
        "learner": {"use": "fats", "rounds": 20, "cohort": 4, "steps": 5, "batch": 8, "step_size": 0.1},
    }


def audits_of(number: int, partition: dict[str, object]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Verdict of the spec and of repeated sampling for every unlearner, one federation."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(config(partition), Path(folder) / "run", secret=derive(ROOT, "training", str(number)))
        for name in UNLEARNERS:
            child = unlearn(run, name, Request.of(clients=[0]), Path(folder) / name)
            result = verify(child, key=derive(ROOT, "audit", str(number), name), save=False)
            found = {f.audit: f for f in result.findings}["model-law"]
            yield name, str(result.verdict), str(found.verdict), found.values


@click.command()
@click.option("--keys", default=10, show_default=True)
@click.option("--json", "out", type=click.Path(path_type=Path))
def main(keys: int, out: Path | None) -> None:
    rows: list[dict[str, Any]] = []
    for title, partition in PARTITIONS.items():
        for number in range(keys):
            for name, verdict, sampled, statistic in audits_of(number, partition):
                row = {"partition": title, "key": number, "unlearner": name, "verdict": verdict, "sampled": sampled}
                rows.append(row | statistic)
        for name in UNLEARNERS:
            own = [r for r in rows if r["partition"] == title and r["unlearner"] == name]
            stops = sorted(r["untouched_rejected_at"] or 257 for r in own)
            rates = [r["detectable_rate"] for r in own if r["detectable_rate"] is not None]
            click.echo(
                f"{title:<26} {name:<9} spec {dict(Counter(r['verdict'] for r in own))}  "
                f"sampling {dict(Counter(r['sampled'] for r in own))}  "
                f"untouched rejected after {stops[0]}/{statistics.median(stops)}/{stops[-1]} pairs "
                f"(min/median/max; 257 = not)  "
                f"detectable rate {min(rates, default=None)} to {max(rates, default=None)}"
            )
    if out:
        out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
