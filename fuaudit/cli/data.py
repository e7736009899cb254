"""The command that brings data."""

from __future__ import annotations

from contextlib import nullcontext, redirect_stderr
from io import StringIO
from pathlib import Path

import click

from fuaudit.cli.options import Folder, emit, output_options


@click.command()
@click.argument("dataset")
@click.option("--data", "root", type=Folder, required=True, help="The folder to fetch to, later given with --data.")
@output_options
def fetch(dataset: str, root: Path, as_json: bool, quiet: bool) -> None:
    """Download DATASET (mnist, fashion-mnist, cifar-10, cifar-100) to a folder, or complete what is there."""
    from fuaudit.workflow.fetch import fetch as work

    # torchvision draws its bars on standard error and cannot be told otherwise; what goes wrong it raises
    with redirect_stderr(StringIO()) if quiet or as_json else nullcontext():
        work(dataset, root)
    emit(as_json, {"dataset": dataset, "data": str(root)}, [f"{dataset} is in {root}"])
