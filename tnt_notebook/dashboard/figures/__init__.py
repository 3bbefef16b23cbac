"""Figures of runs, benchmarks and studies, and the words that go with numbers."""
