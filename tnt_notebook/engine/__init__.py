"""Engine side: how a rank begins, and how it runs cells."""
