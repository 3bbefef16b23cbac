bash -c 'export SLURM_EXPORT_ENV=ALL
exec MPIEXEC "$@"' mpiexec -n 4 --with-ft ulfm --mca coll '^han' --mca async_mpi_finalize 1 --bind-to none --prtemca prte_launch_agent 'env LD_PRELOAD=GUARD TNT_PORTS=hosts prted' --oversubscribe PYTHON -m tnt_notebook.engine --mpi --ranks=4 --logs=/home/user/clusters/tnt-ID-NAME/logs --hosts
