"""What Slurm's configuration files say, for the Slurm of the tests."""

import getpass
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Node:
    """A daemon's place: its name in Slurm, the machine it is on, and where it listens."""

    name: str
    hostname: str
    address: str
    port: int


#: Everything that decides is quick: a job starts at once, and what does not react to SIGTERM gets
#: SIGKILL after 3 s. Ended jobs are known for 300 s. A job that is queued again has to wait for as
#: long as credentials hold (cred_expire), 120 s if not said.
_COMMON = """\
ClusterName=tests
SlurmctldHost={controller.hostname}({controller.address})
SlurmctldPort={controller.port}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd-%n
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=10
CredType=cred/munge
TaskPlugin=task/none
TaskProlog={folder}/task_prolog
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
LaunchParameters=use_interactive_step
PropagateResourceLimits=NONE
JobRequeue=1
ReturnToService=2
OverTimeLimit=0
MinJobAge=300
KillWait=3
SlurmdTimeout=20
MessageTimeout=10
PartitionName=main Nodes=ALL Default=YES DefaultTime=01:00:00 MaxTime=INFINITE State=UP
"""
_NODE = """\
NodeName={node.name} NodeHostname={node.hostname} NodeAddr={node.address} Port={node.port} \
CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN
"""


def write_configuration(
    folder: Path, controller: Node, nodes: Sequence[Node], cgroup: Path | None
) -> None:
    """Writes slurm.conf, for nodes of 4 cores, and what it refers to into the folder.

    Args:
        controller: the host of slurmctld.
        cgroup: in which Slurm keeps the processes of jobs together; None: it follows parents.
    """
    text = _COMMON.format(controller=controller, folder=folder, user=getpass.getuser())
    if cgroup is None:
        text += f"ProctrackType=proctrack/linuxproc\nEpilog={folder}/epilog\n"
    else:
        text += "ProctrackType=proctrack/cgroup\n"
        (folder / "cgroup").mkdir()
        (folder / "cgroup" / cgroup.parent.name).symlink_to(cgroup)
        (folder / "cgroup.conf").write_text(_CGROUP.format(folder=folder))
    for node in nodes:
        (folder / "spool" / node.name).mkdir()
        (folder / "tmp" / node.name).mkdir()
        (folder / "tmp" / node.name).chmod(0o1777)
        text += _NODE.format(node=node)
    (folder / "slurm.conf").write_text(text)
    _write_program(folder / "task_prolog", _TASK_PROLOG.format(folder=folder))
    _write_program(folder / "epilog", _EPILOG.format(python=sys.executable, folder=folder))


_CGROUP = """
CgroupPlugin=cgroup/v1
CgroupMountpoint={folder}/cgroup
CgroupAutomount=no
ConstrainCores=no
"""

#: As many sites have it: a folder of the node's own for temporary files.
_TASK_PROLOG = """#!/bin/sh
echo "export TMPDIR={folder}/tmp/$SLURMD_NODENAME"
"""

#: As many sites have it: what is left of a job on its node ends with it. With proctrack/cgroup
#: Slurm does so itself; proctrack/linuxproc knows only children whose parents live.
_EPILOG = """#!{python} -SE
import os, signal
job, node = (f"{{name}}={{os.environ[name]}}" for name in ("SLURM_JOB_ID", "SLURMD_NODENAME"))
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{{pid}}/environ", errors="replace") as file:
            own = file.read().split("\\0")
        here = any(word.startswith("SLURM_CONF={folder}/") for word in own)
        if here and job in own and node in own and int(pid) != os.getpid():
            os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass  # it has ended, or is another user's
"""


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
