"""``python -m fuaudit.cli``."""

from fuaudit.cli import main

main()
