"""Checkpoints: the state of a run, kept while it trains, from which it goes on later."""
