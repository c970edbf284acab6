"""Everything that touches the world: sockets, files, clocks, Redis. It acts, and decides nothing."""
