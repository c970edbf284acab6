"""The command line. A verb is one file in ``proxy/commands`` and one entry in ``VERBS``."""

import sys
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from proxy.config_error import ConfigError
from proxy.version import VERSION, compiled

HELP = {"help_option_names": ["-h", "--help"]}


class Verb(NamedTuple):
    """Where a verb lives, and the line that tells of it without importing it."""

    target: str
    """``module:function``."""
    summary: str


VERBS: dict[str, Verb] = {
    "serve": Verb("proxy.commands.serve:serve", "Run the gateway."),
    "demo": Verb(
        "proxy.commands.demo:demo", "Show it at work: two real small engines, sample traffic, what went where."
    ),
    "check": Verb("proxy.commands.check:check", "Check a configuration file; with --live, ask every backend too."),
    "doctor": Verb(
        "proxy.commands.doctor:doctor", "Find out whether draft and target fit, and whether the lanes are twins."
    ),
    "bench": Verb("proxy.commands.bench:bench", "Compare the lanes on the same prompts, and refuse to be fooled."),
    "tune": Verb("proxy.commands.tune:tune", "Sweep the number of draft tokens and recommend one."),
    "estimate": Verb("proxy.commands.estimate:estimate", "Say whether speculation can pay on a GPU, a model, a batch."),
    "simulate": Verb("proxy.commands.simulate:simulate", "Replay a traffic trace through modelled lanes."),
    "replay": Verb("proxy.commands.replay:replay", "Take the decisions of a journal again, or under other settings."),
    "explain": Verb("proxy.commands.explain:explain", "Say why a request went where it went."),
    "engine": Verb("proxy.commands.engine:engine", "Run a simulated engine, for tests and demonstrations."),
    "schema": Verb("proxy.commands.schema:schema", "Print the JSON Schema of the configuration file."),
}


def load_verb(name: str) -> Any:
    """The function behind a verb."""
    module, _, function = VERBS[name].target.partition(":")
    return getattr(import_module(module), function)


def as_command(name: str) -> Any:
    """A verb as a command of its own, options and all; this is what imports it."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, context_settings=HELP)(load_verb(name))
    return typer.main.get_command(single)


class Verbs(TyperGroup):
    """Knows the verbs from the table, and imports only the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The verbs in the table's order."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in that can be listed, since help pages ask for every command."""
        if cmd_name not in VERBS:
            return None
        listed = typer.Typer(add_completion=False)
        listed.command(cmd_name, help=VERBS[cmd_name].summary)(_listed_only)
        return typer.main.get_command(listed)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The real command, for the verb that was called."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if name is None or command is None else as_command(name), rest


def _listed_only() -> None:
    raise AssertionError("a stand-in is never called")


app = typer.Typer(
    cls=Verbs,
    name="draftlane",
    help="An OpenAI-compatible gateway that decides per request whether speculative decoding pays.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"draftlane {VERSION}{', compiled' if compiled() else ''}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point. Exit status: 0 fine, 1 a check failed, 2 the operator's mistake (told without a traceback)."""
    try:
        app(prog_name="draftlane")
    except ConfigError as error:
        for fault in error.faults:
            typer.echo(fault, err=True)
        sys.exit(2)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        typer.echo(f"draftlane: {error.filename}: {error.strerror}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        lacks = (error.name or "proxy").partition(".")[0]
        if lacks in ("proxy", "policies"):
            raise
        typer.echo(f"draftlane: this verb needs the package {lacks}, which comes with the demo extra", err=True)
        sys.exit(2)
