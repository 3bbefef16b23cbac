"""The life of ranks: their start, their state, their recovery and their end."""
