"""Proof: measure before and after, and refuse to be fooled."""
