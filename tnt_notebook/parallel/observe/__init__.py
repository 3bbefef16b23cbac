"""What a rank tells of its steps: progress, samples of steps, meters."""
