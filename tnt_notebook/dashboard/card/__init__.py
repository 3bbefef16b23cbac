"""The card of a run or a sweep in the notebook, while it goes and once it is saved."""
