bash -lc 'module load cuda/12.4 && exec "$@"' modules env -u SLURM_JOB_ID MPIEXEC -n 2 --bind-to none PYTHON -m tnt_notebook.engine --mpi --ranks=2 --logs=/home/user/clusters/tnt-ID-NAME/logs
