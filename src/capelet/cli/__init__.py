"""The command line: parse, build, call one function, print.

Every import that costs time happens inside a command, so that `capelet --help` answers at once.
"""

from capelet.cli import audit, look, release  # noqa: F401  (each adds its commands to the app)
from capelet.cli.shared import app


def main() -> None:
    """The `capelet` command."""
    app()
