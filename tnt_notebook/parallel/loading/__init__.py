"""How fast input comes to the ranks: generated files of several formats, read as a loader reads
them, and datasets of a person's own."""
