"""The command line: parse, build, call one function, print.

Every import that costs time happens inside a command, so that `capelet --help` answers at once.
"""

# Each of these adds its commands to the app.
from capelet.cli import attack, audit, dual, lm, look, protect, release  # noqa: F401
from capelet.cli.shared import app


def main() -> None:
    """The `capelet` command."""
    app()
