"""A Keras model as a list of calls of layers: what their values are, and how long they take."""
