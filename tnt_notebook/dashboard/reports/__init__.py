"""What is shown of a run, a plan, a benchmark or a study that is over."""
