"""Keras's methods over all ranks: scope and session, a call from its begin to its end, and where
a model's step comes from."""
