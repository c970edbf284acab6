"""The demonstration: two small engines, the gateway before them, three applications, and a table of what went where."""
