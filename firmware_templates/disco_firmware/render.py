"""Renders the templates of this package; the only place that uses Jinja2."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import jinja2


def render(template: str, context: Any) -> str:
    """The text of templates/`template` filled in from a dataclass; a name that it lacks is an error."""
    fields = {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
    return _environment().get_template(template).render(fields)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("disco_firmware", "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # C and CMake, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
