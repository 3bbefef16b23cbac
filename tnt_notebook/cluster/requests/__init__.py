"""Requests to ranks that answer: sent, queued, collected, and the one error that they end with."""
