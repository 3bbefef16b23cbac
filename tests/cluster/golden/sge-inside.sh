bash -c 'forward=$(compgen -e | grep -Ev '"'"'^(_|PWD|OLDPWD|SHLVL|HOSTNAME|TMPDIR|TMP|TEMP|DISPLAY|[A-Z]+_VISIBLE_DEVICES|CONFIGPROXY_AUTH_TOKEN|(PBS|LSB|LSF|SGE|PE|SSH|XDG|PMIX|PRTE|JUPYTER|JUPYTERHUB|JPY)_.*)$'"'"' | sed '"'"'s/^/-x /'"'"')
awk '"'"'int($2 / 2) > 0 {print $1" slots="int($2 / 2)}'"'"' "$PE_HOSTFILE" > "$TNT_FOLDER/hosts"
exec MPIEXEC --hostfile "$TNT_FOLDER/hosts" $forward "$@"' mpiexec -n 4 --bind-to none --oversubscribe PYTHON -m tnt_notebook.engine --mpi --ranks=4 --logs=/home/user/clusters/tnt-ID-NAME/logs --cores=2 --hosts
