bash -c 'forward=$(compgen -e | grep -Ev '"'"'^(_|PWD|OLDPWD|SHLVL|HOSTNAME|TMPDIR|TMP|TEMP|DISPLAY|[A-Z]+_VISIBLE_DEVICES|CONFIGPROXY_AUTH_TOKEN|(PBS|LSB|LSF|SGE|PE|SSH|XDG|PMIX|PRTE|JUPYTER|JUPYTERHUB|JPY)_.*)$'"'"' | sed '"'"'s/^/-x /'"'"')
awk '"'"'!n[$1]++ {h[++k] = $1} END {for (i = 1; i <= k; i++) print h[i]" slots="n[h[i]]}'"'"' "$PBS_NODEFILE" > "$TNT_FOLDER/hosts"
printf '"'"'%s\n'"'"' '"'"'host=$1; shift'"'"' '"'"'exec pbs_tmrsh "$host" /bin/sh -c "$*"'"'"' > "$TNT_FOLDER/agent"
agent="ssh : rsh"; command -v pbs_tmrsh > /dev/null && agent="sh $TNT_FOLDER/agent"
exec MPIEXEC --hostfile "$TNT_FOLDER/hosts" --prtemca plm_ssh_agent "$agent" $forward "$@"' mpiexec -n 4 --with-ft ulfm --mca coll '^han' --mca async_mpi_finalize 1 --bind-to none --prtemca prte_launch_agent 'env LD_PRELOAD=GUARD TNT_PORTS=hosts prted' --oversubscribe PYTHON -m tnt_notebook.engine --mpi --ranks=4 --logs=/home/user/clusters/tnt-ID-NAME/logs --hosts
