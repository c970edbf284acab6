"""``draftlane engine``: a simulated engine on a port."""

from typing import Annotated

import typer
from rich.console import Console

from proxy.simulated.character import Character
from proxy.simulated.running import server


def engine(
    port: Annotated[int, typer.Option("--port", help="0 takes a free one.")] = 8000,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    dialect: Annotated[str, typer.Option("--engine", help="Whose wire it speaks: vllm or llamacpp.")] = "vllm",
    model: Annotated[str, typer.Option("--model", help="Name in its model list.")] = "simulated-model",
    depth: Annotated[int, typer.Option("--speculative", min=0, help="Draft tokens per step; 0: none.")] = 0,
    method: Annotated[str, typer.Option("--method", help="draft (drafts always) or ngram (on a match).")] = "draft",
    acceptance: Annotated[float, typer.Option("--acceptance", min=0, max=1, help="Per draft token.")] = 0.7,
    by_content: Annotated[
        bool, typer.Option("--by-content/--uniform", help="Acceptance depends on content and temperature.")
    ] = True,
    step_ms: Annotated[float, typer.Option("--step-ms", min=0, help="An engine step without load.")] = 20.0,
    token_us: Annotated[float, typer.Option("--token-us", min=0, help="Added per token verified in a step.")] = 150.0,
    draft_ms: Annotated[float, typer.Option("--draft-ms", min=0, help="Added per draft token.")] = 0.6,
    prefill_us: Annotated[float, typer.Option("--prefill-us", min=0, help="Added per prompt token read.")] = 100.0,
    max_requests: Annotated[int, typer.Option("--max-requests", min=1, help="At once; more wait.")] = 64,
    context_tokens: Annotated[int, typer.Option("--context", min=1, help="Longest prompt and answer.")] = 32_768,
    cache_blocks: Annotated[int, typer.Option("--cache-blocks", min=0, help="Prompt cache; 0: none.")] = 4096,
    output_scale: Annotated[float, typer.Option("--output-scale", help="Stretches answers.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same words.")] = 0,
    request_metrics: Annotated[
        bool, typer.Option("--request-metrics/--no-request-metrics", help="Acceptance on every answer.")
    ] = True,
    key: Annotated[
        str | None, typer.Option("--api-key", envvar="DRAFTLANE_ENGINE_KEY", help="Required under /v1.")
    ] = None,
) -> None:
    """Run a simulated engine: made-up text and made-up speeds on a real wire. For tests and demonstrations."""
    settings = {name: value for name, value in locals().items() if name not in ("host", "port")}
    try:
        character = Character(**settings)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    serve(character, host, port)


def serve(character: Character, host: str, port: int) -> None:
    """Run it until interrupted; says first where, and that it is simulated."""
    try:
        serving, listening = server(character, host, port)
    except OSError as error:
        raise typer.BadParameter(f"cannot listen on {host}:{port}: {error.strerror}") from None
    speculation = f"{character.depth} draft tokens per step" if character.depth else "no speculation"
    where = f"http://{host}:{listening.getsockname()[1]}"
    Console(stderr=True).print(
        f"SIMULATED engine (made-up text and speeds), {character.dialect} wire, {speculation}: {where}",
        highlight=False,
        soft_wrap=True,
    )
    serving.run(sockets=[listening])
