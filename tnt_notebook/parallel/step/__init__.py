"""A training step: what ranks hold of weights, where they exchange, what logs say."""
