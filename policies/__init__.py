"""The judgement: which backend serves a request, and what is known about each.

Pure and deterministic. Nothing here reads a clock, a socket, a file, the environment or a random
source: time, ids and random draws arrive as fields of events, reasons leave as values. The same
events under the same settings give the same decisions, byte for byte, so a day of production can be
replayed, explained and tried under other settings. ``policies/README.md`` holds the theory.
"""
