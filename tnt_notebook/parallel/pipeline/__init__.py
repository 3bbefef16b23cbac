"""Models cut into stages, each on a rank of its own, and the order in which ranks run them."""
