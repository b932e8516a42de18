"""PyTorch's tracer and exporter without their comments."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def quiet() -> Iterator[None]:
    """Silence them: progress on stdout, the code of a failed trace on stderr, warnings about their own internals."""
    level = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)
