#!/bin/bash -l
#BSUB -J tnt-ID
#BSUB -o /home/user/clusters/tnt-ID-NAME/logs/job.log
#BSUB -rn
#BSUB -n 5
#BSUB -R "span[ptile=3]"
#BSUB -R "affinity[core(3)]"
#BSUB -gpu "num=4/host"
#BSUB -W 36:00
#BSUB -q gpu
#BSUB -P physics
#BSUB -x
umask 077
exec >> /home/user/clusters/tnt-ID-NAME/logs/mpiexec.log 2>&1
. /home/user/clusters/tnt-ID-NAME/environment.sh
cd NOTEBOOK 2> /dev/null || cd
module load cuda/12.4 || exit
module load hdf5 || exit
forward=$(compgen -e | grep -Ev '^(_|PWD|OLDPWD|SHLVL|HOSTNAME|TMPDIR|TMP|TEMP|DISPLAY|[A-Z]+_VISIBLE_DEVICES|CONFIGPROXY_AUTH_TOKEN|(PBS|LSB|LSF|SGE|PE|SSH|XDG|PMIX|PRTE|JUPYTER|JUPYTERHUB|JPY)_.*)$' | sed 's/^/-x /')
awk '!n[$1]++ {h[++k] = $1} END {for (i = 1; i <= k; i++) print h[i]" slots="n[h[i]]}' "$LSB_DJOB_HOSTFILE" > "$TNT_FOLDER/hosts"
(sleep 129480; kill -USR1 $$) &
trap 'touch "$TNT_FOLDER/time-is-up"' USR1
trap 'ending=1; kill $ranks 2> /dev/null' TERM
for round in $(seq 1000); do
  env TNT_ENGINES_ID=ID MPIEXEC -n 5 --hostfile "$TNT_FOLDER/hosts" --prtemca plm_ssh_agent blaunch $forward --with-ft ulfm --mca coll '^han' --mca async_mpi_finalize 1 --bind-to none --prtemca prte_launch_agent 'env LD_PRELOAD=GUARD TNT_PORTS=hosts prted' --oversubscribe PYTHON -m tnt_notebook.engine --mpi --profile-dir=/home/user/clusters/tnt-ID-NAME/profile --cluster-id=ID --ranks=5 --logs=/home/user/clusters/tnt-ID-NAME/logs --gpus=4 --cores=3 --hosts &
  ranks=$!
  while :; do
    wait $ranks
    code=$?
    kill -0 $ranks 2> /dev/null || break
  done
  echo $code > "$TNT_FOLDER/ended-$round"
  timeout 20 env -u PRTE_MCA_prte_tmpdir_base MPIEXEC --hostfile "$TNT_FOLDER/hosts" --prtemca plm_ssh_agent blaunch $forward --map-by ppr:1:node:oversubscribe --bind-to none sh -c '[ -L "$1/folder" ] || rm -rf "$1" "${TMPDIR:-/tmp}/$2"' sweep /dev/shm/tnt-ID-NAME tnt-ID-NAME
  for wait in $(seq 120); do
    [ "$ending" ] && exit 0
    [ -e "$TNT_FOLDER/again-$round" ] && continue 2
    sleep 0.5
  done
  exit $code
done
