"""What must be the same on all ranks: calls, data, the state of models, random states."""
