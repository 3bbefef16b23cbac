"""What of the notebook's environment goes into a job."""

import os
import subprocess

from tnt_notebook.cluster.launch.batch import inheritable
from tnt_notebook.cluster.launch.script import FORWARD, environment_script

STAYS = {
    "JUPYTERHUB_API_TOKEN": "secret", "JPY_API_TOKEN": "secret", "JUPYTER_TOKEN": "secret",
    "CONFIGPROXY_AUTH_TOKEN": "secret", "SSH_AUTH_SOCK": "/tmp/agent", "SLURM_JOB_ID": "7",
    "PBS_JOBID": "7", "LSB_JOBID": "7", "PE_HOSTFILE": "/x", "PMIX_RANK": "0", "TMPDIR": "/tmp/me",
    "OMPI_COMM_WORLD_RANK": "0", "CUDA_VISIBLE_DEVICES": "3", "DISPLAY": ":0", "HOSTNAME": "login",
    "BASH_FUNC_module%%": "() { x; }", "XDG_RUNTIME_DIR": "/run/user/1", "TNT_RUN_DIR": "/tmp",
}  # fmt: skip
GOES = {
    "PATH": "/opt/bin:/bin", "LD_LIBRARY_PATH": "/opt/lib", "HOME": "/home/ada", "USER": "ada",
    "KERAS_BACKEND": "tensorflow", "SLURM_CONF": "/etc/slurm.conf", "SGE_ROOT": "/opt/sge",
    "SGE_QMASTER_PORT": "6444", "PBS_DEFAULT": "server", "LSF_ENVDIR": "/etc/lsf", "TNT_LANES": "2",
}  # fmt: skip


def test_tokens_and_what_is_of_this_host_stay_here():
    assert inheritable({**STAYS, **GOES}) == GOES


def test_values_come_through_the_shell_as_they_are():
    values = {"A": "two words", "B": 'it\'s "$HOME" `x` \\', "C": "", "D": "a\nb", "not a name": ""}
    text = environment_script({"MINE": "*"}, values)
    run = subprocess.run(
        ["env", "-i", "bash", "-c", f"{text}\nenv -0"], capture_output=True, text=True
    )
    found = dict(line.split("=", 1) for line in run.stdout.split("\0") if line)
    assert {k: found.get(k) for k in values} == {**values, "not a name": None}
    assert found["MINE"] == "*"


def test_ranks_on_other_hosts_are_told_the_rest_by_name():
    environment = {**STAYS, **GOES, "A_LINE": "a\nB=c", "PATH": os.environ["PATH"]}
    run = subprocess.run(
        ["bash", "-c", f"{FORWARD}\necho $forward"], env=environment, capture_output=True, text=True
    )
    told = set(run.stdout.replace("-x ", "").split())
    sites = {"SGE_ROOT", "SGE_QMASTER_PORT", "PBS_DEFAULT", "LSF_ENVDIR"}
    assert (set(GOES) | {"A_LINE"}) - sites <= told
    assert not told & (set(STAYS) - {"SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK", "TNT_RUN_DIR"})
