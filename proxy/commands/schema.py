"""``draftlane schema``."""

import json
from typing import Annotated

import typer

from proxy.config import schema as config_schema
from proxy.config_reference import reference


def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="The reference page instead.")] = False,
) -> None:
    """Print the JSON Schema of the configuration file, for editors and checks, or its reference page."""
    typer.echo(reference(config_schema()) if markdown else json.dumps(config_schema(), indent=2, ensure_ascii=False))
