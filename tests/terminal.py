"""The command line within the tests' own process: what it prints, and how it ends."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch


@dataclass(frozen=True)
class Result:
    """The exit code and what was printed; whatever else was raised."""

    exit_code: int
    stdout: str
    stderr: str
    exception: BaseException | None = None

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


class CliRunner:
    """Runs a command line as a shell would, without a process of its own."""

    def invoke(
        self,
        app: Callable[[Sequence[str]], None],
        arguments: Sequence[str],
        env: Mapping[str, str] | None = None,
    ) -> Result:
        out, err = io.StringIO(), io.StringIO()
        code, fault = 0, None
        with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, env or {}):
            try:
                app([str(word) for word in arguments])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except Exception as error:
                code, fault = 1, error
        return Result(code, out.getvalue(), err.getvalue(), fault)
