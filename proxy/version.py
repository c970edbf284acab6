"""The version, written once: packaging, ``--version``, the journal and ``/version`` take it from here."""

VERSION = "0.1.0"
