"""Bytes on sockets: the pooled upstream client, the fast server protocol and its portable ASGI twin."""
