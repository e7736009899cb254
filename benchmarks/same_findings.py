"""Whether two checkouts find the same in the README's examples: python benchmarks/same_findings.py OLD NEW.

Each checkout trains, unlearns and verifies with its own `.venv`, under one secret and one key. Compared are the bytes
of all models, and of findings the verdicts, the values of figures and the sentences. Names of before are mapped to
those of now. Digests in sentences are left out: they change with a format. Repeated sampling is left out: it takes
minutes.

The exit code is 1 where a model, a verdict or a figure differs. Sentences are counted, and shown by --words.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fuaudit.renamed import PLUGINS

ROOT = Path(__file__).parents[1]
FIGURES = {"until": "stopping"}
"""Former key of a figure -> key. Former names of audits stand in :mod:`fuaudit.renamed`."""

MAKE = """
import inspect, json, sys
from pathlib import Path
from fuaudit import train, unlearn, verify
from fuaudit.plans import Request
tables, out = json.loads(sys.argv[1]), Path(sys.argv[2])
parent = train(tables, out / "nines", secret=bytes(range(32)))
inexact = {word: True for word in ("allow_inexact", "anyway") if word in inspect.signature(unlearn).parameters}
sample = Request.of([], [parent.plan.retained.samples[3][14]])
asked = {"fats": Request.of([0]), "retrain": Request.of([0]), "noop": Request.of([0]), "finetune": Request.of([0])}
for method, request in {**asked, "fats-as-printed": sample}.items():
    child = unlearn(parent, method, request, out / method, **inexact)
    found = verify(child, key=bytes(32), budget=0, save=False)
    (out / f"{method}.json").write_text(json.dumps(found.as_json(), default=str))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs=2, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, help="of training, where those of the example take too long")
    parser.add_argument("--words", action="store_true", help="show the sentences that differ")
    given = parser.parse_args()
    tables = tomllib.loads((ROOT / "examples/nines.toml").read_text())
    tables["learner"] |= {"rounds": given.rounds} if given.rounds else {}
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / name for name in ("old", "new")]
        for checkout, out in zip(given.checkouts, outs, strict=True):
            (made := Path(folder) / "made").mkdir()  # one name for both: sentences hold paths
            python = checkout.absolute() / ".venv/bin/python"
            subprocess.run([python, "-c", MAKE, json.dumps(tables), made], cwd=checkout, check=True)
            made.rename(out)
        wrong = [*unequal_models(*outs)]
        old, new = map(documents, outs)
        found = [differences(f"{method}: ", old[method], new[method]) for method in old]
    wrong += [line for lines, _ in found for line in lines]
    words = [line for _, lines in found for line in lines]
    print("\n".join([*wrong, *(words if given.words else [])]))
    print(f"{len(found)} verifications: {len(wrong)} models, verdicts or figures differ, and {len(words)} sentences")
    return int(bool(wrong))


def unequal_models(old: Path, new: Path) -> Iterator[str]:
    """The files of models that differ, or that one of the two lacks."""
    ours, theirs = map(models, (old, new))
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            yield f"{name}: other bytes"


def models(out: Path) -> dict[Path, bytes]:
    """Path -> content of all files that hold models."""
    found = [*out.glob("*/checkpoints/*"), *out.glob("*/model.safetensors")]
    return {path.relative_to(out): path.read_bytes() for path in found}


def documents(out: Path) -> dict[str, Any]:
    """Method -> its findings."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}


def differences(method: str, old: dict[str, Any], new: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What differs of two documents: verdicts and figures, and sentences."""
    wrong, words = compared(f"{method}verdict", old["verdict"], new["verdict"]), []
    for check, other in zip_longest(old["checks"], new["checks"]):
        if check is None or other is None:
            wrong.append(f"{method}an audit is in one of them alone: {(check or other)['finding']['audit']}")
            continue
        one, two = (plain(each["finding"]) for each in (check, other))
        name, values = method + two["audit"], [figures(one), figures(two)]
        for key in ("audit", "verdict"):
            wrong += compared(f"{name} {key}", one[key], two[key])
        for key in sorted(values[0].keys() | values[1].keys()):
            wrong += compared(f"{name} {key}", *(each.get(key) for each in values))
        for key in sorted(one.keys() & two.keys() - {"audit", "verdict", "figures"}):
            words += compared(f"{name} {key}", one[key], two[key])
    return wrong, words


def compared(what: str, one: Any, two: Any) -> list[str]:
    return [] if one == two else [f"{what}:\n  {one}\n  {two}"]


def figures(finding: dict[str, Any]) -> dict[str, Any]:
    """Key -> value; before they were values they stood in a table."""
    told = {each["key"]: each["value"] for each in finding["figures"]} if "figures" in finding else finding["statistic"]
    return {FIGURES.get(key, key): value for key, value in told.items()}


def plain(value: Any) -> Any:
    """Without digests, and with names of now."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if value in PLUGINS["audits"]:
        return PLUGINS["audits"][value]
    return re.sub(r"\b[0-9a-f]{12,64}\b", "DIGEST", value)


if __name__ == "__main__":
    sys.exit(main())
