env -u SLURM_JOB_ID MPIEXEC -n 4 --bind-to none --oversubscribe --display bind PYTHON -m tnt_notebook.engine --mpi --ranks=4 --logs=/home/user/clusters/tnt-ID-NAME/logs --gpus=2 --cores=1
