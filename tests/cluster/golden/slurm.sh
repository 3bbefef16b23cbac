#!/bin/bash
#SBATCH --job-name=tnt-ID
#SBATCH --output=/home/user/clusters/tnt-ID-NAME/logs/mpiexec.log
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --export=NIL
#SBATCH --signal=B:USR1@120
#SBATCH --ntasks=4
umask 077
. /home/user/clusters/tnt-ID-NAME/environment.sh
cd NOTEBOOK 2> /dev/null || cd
export SLURM_EXPORT_ENV=ALL
trap 'touch "$TNT_FOLDER/time-is-up"' USR1
trap 'ending=1; kill $ranks 2> /dev/null' TERM
for round in $(seq 1000); do
  env TNT_ENGINES_ID=ID MPIEXEC -n 4 --with-ft ulfm --mca coll '^han' --mca async_mpi_finalize 1 --bind-to none --prtemca prte_launch_agent 'env LD_PRELOAD=GUARD TNT_PORTS=hosts prted' --oversubscribe PYTHON -m tnt_notebook.engine --mpi --profile-dir=/home/user/clusters/tnt-ID-NAME/profile --cluster-id=ID --ranks=4 --logs=/home/user/clusters/tnt-ID-NAME/logs --hosts &
  ranks=$!
  while :; do
    wait $ranks
    code=$?
    kill -0 $ranks 2> /dev/null || break
  done
  echo $code > "$TNT_FOLDER/ended-$round"
  timeout 20 env -u SLURM_NTASKS -u SLURM_NPROCS SLURM_OVERLAP=1 srun --ntasks-per-node=1 --mpi=none sh -c '[ -L "$1/folder" ] || rm -rf "$1" "${TMPDIR:-/tmp}/$2"' sweep /dev/shm/tnt-ID-NAME tnt-ID-NAME
  for wait in $(seq 120); do
    [ "$ending" ] && exit 0
    [ -e "$TNT_FOLDER/again-$round" ] && continue 2
    sleep 0.5
  done
  exit $code
done
