"""One file per verb of the command line; ``proxy.cli.VERBS`` names them all."""
