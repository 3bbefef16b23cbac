"""Work on the ranks while the notebook goes on: fits, sweeps, studies of scaling."""
