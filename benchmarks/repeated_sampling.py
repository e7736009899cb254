"""Power of level 6 on digits for fresh keys: python benchmarks/repeated_sampling.py [--keys 20] [--json OUT].

The stakes and shares of the test by betting were chosen on other keys (development keys); here every master secret and
audit key follows from the number of the federation, and was fixed before anything was run. The target is client 0.
Prints, for each partition, after how many pairs the untouched control is rejected, the other control, and what the
subject's tests say.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from fuaudit import train, unlearn, verify
from fuaudit.commitments.keys import derive
from fuaudit.plans import Request
from fuaudit.verification.spec import Spec, read_spec

ROOT = b"fuaudit: repeated sampling, v1.."
PARTITIONS: dict[str, dict[str, object]] = {
    "IID": {"use": "iid", "clients": 20},
    "one client holds a class": {"use": "one-holder", "clients": 20, "label": 9},
}


def config(partition: dict[str, object]) -> dict[str, object]:
    return {
        "data": {"use": "digits"},
        "partition": partition,
        "model": {"use": "mlp", "hidden": [32]},
        "learner": {"use": "fats", "rounds": 20, "cohort": 4, "steps": 5, "batch": 8, "step_size": 0.1},
    }


def sampling_alone() -> Spec:
    spec = read_spec("client-erasure")
    return replace(spec, checks=tuple(check for check in spec.checks if check.audit["use"] == "model-law"))


def findings_of(number: int, title: str, unlearners: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        secret = derive(ROOT, "training", title, str(number))
        run = train(config(PARTITIONS[title]), Path(folder) / "run", secret=secret)
        for name in unlearners:
            child = unlearn(run, name, Request.of(clients=[0]), Path(folder) / name)
            key = derive(ROOT, "audit", title, str(number), name)
            finding = verify(child, sampling_alone(), key=key, save=False).findings[0]
            yield {
                "partition": title,
                "key": number,
                "unlearner": name,
                "verdict": str(finding.verdict),
                "second": finding.controls[0].observed,
                "needed for half": finding.values["pairs_needed"],
                **finding.values,
            }


@click.command()
@click.option("--keys", default=20, show_default=True)
@click.option("--unlearner", "unlearners", multiple=True, default=("fats", "finetune"), show_default=True)
@click.option("--json", "out", type=click.Path(path_type=Path))
def main(keys: int, unlearners: tuple[str, ...], out: Path | None) -> None:
    rows = [row for title in PARTITIONS for number in range(keys) for row in findings_of(number, title, unlearners)]
    if out:
        out.write_text(json.dumps(rows, indent=1))
    for title in PARTITIONS:
        for name in unlearners:
            own = [row for row in rows if (row["partition"], row["unlearner"]) == (title, name)]
            stops = np.array([row["untouched_rejected_at"] or np.inf for row in own])
            batch = sum(row["untouched_batch_p_value"] <= row["alpha_batch"] for row in own)
            median, late = np.quantile(stops, [0.5, 0.9], method="higher")
            without = [row.get("without_rejected_at") for row in own]
            click.echo(
                f"{title:<26} {name:<9} verdicts {[row['verdict'] for row in own].count('FAIL')} FAIL, "
                f"{[row['verdict'] for row in own].count('PASS')} PASS of {len(own)}  "
                f"untouched rejected after {stops.min():.0f}/{median:.0f}/{late:.0f}/{stops.max():.0f} pairs "
                f"(min/median/90 %/max), by batch tests in {batch}  "
                f"second arm rejected in {sum(row['second'] == 'rejected' for row in own)}  "
                f"same editor without target told apart in {sum(value is not None for value in without)}"
            )


if __name__ == "__main__":
    main()
