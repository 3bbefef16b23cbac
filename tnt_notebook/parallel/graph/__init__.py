"""The traced step: what ranks have of each of its values, and where samples meet."""
