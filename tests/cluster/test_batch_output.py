"""What batch systems print, made sense of: samples of what the real ones print."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tnt_notebook.cluster.launch import lsf, pbs, sge, slurm
from tnt_notebook.cluster.launch.batch import Job

SLURM = (
    "JobId=41 JobName=tnt-1a2b3c4d UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A "
    "Priority=4294901758 Nice=0 Account=physics QOS=normal JobState={state} Reason={reason} "
    "Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code} "
    "RunTime=00:00:09 TimeLimit={limit} TimeMin=N/A SubmitTime=2026-11-22T10:00:00 "
    "EligibleTime=2026-11-22T10:00:00 AccrueTime=2026-11-22T10:00:00 StartTime={start} "
    "EndTime={end} Deadline=N/A Partition=main AllocNode:Sid=login:4711 ReqNodeList=(null) "
    "ExcNodeList=(null) NodeList=node[1-2] BatchHost=node1 NumNodes=2 NumCPUs=2 NumTasks=2 "
    "CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=2,node=2,billing=2 Socks/Node=* "
    "Command=/home/ada/job.sh WorkDir=/home/ada StdErr=/home/ada/out StdOut=/home/ada/out Power= "
)


def of_slurm(state: str, reason: str = "None", code: str = "0:0", **more: str) -> str:
    times = {"limit": "01:00:00", "start": "Unknown", "end": "Unknown", **more}
    return SLURM.format(state=state, reason=reason, code=code, **times)


SLURM_JOBS = [
    (of_slurm("PENDING", "Resources"), Job("pending", "nodes are not free yet")),
    (of_slurm("PENDING", "Priority", start="2026-11-22T12:30:00"),
     Job("pending", "other jobs go first", "expected at 2026-11-22 12:30:00")),
    (of_slurm("PENDING", "ReqNodeNotAvail,_UnavailableNodes:node[1-2]"),
     Job("pending", "nodes that it needs are drained or down")),
    (of_slurm("PENDING", "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_"
              "higher_priority_partitions"),
     Job("pending", "nodes that it needs are drained or down")),
    (of_slurm("PENDING", "PartitionConfig"),
     Job("pending", "its partition does not allow what it asks for, as nodes, time or memory: "
         "scontrol show partition")),
    (of_slurm("PENDING", "QOSMaxJobsPerUserLimit"), Job("pending", "QOSMaxJobsPerUserLimit")),
    (of_slurm("CONFIGURING"), Job("pending", "it was just submitted")),
    (of_slurm("RUNNING", end="2026-11-22T11:00:00"),
     Job("running", "", "until 2026-11-22 11:00:00")),
    (of_slurm("RUNNING", limit="UNLIMITED"), Job("running")),
    (of_slurm("COMPLETING", limit="UNLIMITED"), Job("ending")),
    (of_slurm("COMPLETING", "TimeLimit"), Job("ending", "its time was over")),
    (of_slurm("TIMEOUT", "TimeLimit", "0:15"), Job("ended", "its time was over")),
    (of_slurm("CANCELLED", code="0:15"), Job("ended", "it was cancelled")),
    (of_slurm("NODE_FAIL", "NodeDown"), Job("ended", "a node failed")),
    (of_slurm("OUT_OF_MEMORY", code="0:125"), Job("ended", "it ran out of memory")),
    (of_slurm("FAILED", "NonZeroExitCode", "3:0"),
     Job("ended", "its processes failed", "exit code 3:0")),
    (of_slurm("COMPLETED"), Job("ended", "its processes ended")),
    (of_slurm("REVOKED"), Job("ended", "revoked")),
    # An array, and a job of several parts, as --extra may ask for them: the first counts.
    ("JobId=52 ArrayJobId=51 ArrayTaskId=1 JobName=a JobState=RUNNING TimeLimit=UNLIMITED \n"
     "JobId=51 ArrayJobId=51 ArrayTaskId=2-9%2 JobName=a JobState=PENDING Reason=Resources \n",
     Job("running")),
    ("JobId=61 HetJobId=61 HetJobOffset=0 HetJobIdSet=61-62 JobName=a JobState=RUNNING \n"
     "JobId=62 HetJobId=61 HetJobOffset=1 JobName=a JobState=FAILED ExitCode=1:0 \n",
     Job("running")),
    (of_slurm("RUNNING", limit="UNLIMITED") + "Comment=JobState=FAILED", Job("running")),
    ("slurm_load_jobs error: Invalid job id specified",
     Job("ended", "Slurm knows nothing of it any more")),
    ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
     Job("unknown",
         "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")),
    ("", Job("unknown", "no answer")),
]  # fmt: skip


def of_pbs(state: str, *more: str) -> str:
    lines = [
        "Job Id: 1234.pbs01", "    Job_Name = tnt-1a2b3c4d", "    Job_Owner = ada@login1",
        f"    job_state = {state}", "    queue = workq", "    server = pbs01",
        "    Checkpoint = u", "    ctime = Sun Nov 22 10:00:00 2026",
        "    Error_Path = login1:/home/ada/tnt.e1234", "    Resource_List.ncpus = 2",
        "    Resource_List.nodect = 2", "    Resource_List.place = scatter",
        "    Resource_List.select = 2:ncpus=1:mpiprocs=1",
        "    Resource_List.walltime = 01:00:00", "    substate = 42",
        "    Variable_List = PBS_O_HOME=/home/ada,PBS_O_LANG=en_US.UTF-8,",
        "\tPBS_O_LOGNAME=ada,PBS_O_PATH=/bin,PBS_O_SHELL=/bin/bash,", "\tPBS_O_HOST=login1",
        *(f"    {line}" for line in more), "    project = _pbs_project_default", "", "",
    ]  # fmt: skip
    return "\n".join(lines)


LACKS = "Not Running: Insufficient amount of resource: ncpus (R: 4 A: 0 T: 8)"


PBS_JOBS = [
    (of_pbs("Q", f"comment = {LACKS}"), Job("pending", LACKS)),
    (of_pbs("Q", "estimated.start_time = Sun Nov 22 12:00:00 2026"),
     Job("pending", "it is in the queue", "expected Sun Nov 22 12:00:00 2026")),
    (of_pbs("Q").replace("    project", "    comment = Not Running: Insufficient amount of"
                         "\n\t resource: ncpus (R: 4 A: 0 T: 8)\n    project"),
     Job("pending", LACKS)),
    (of_pbs("Q"), Job("pending", "it is in the queue")),
    (of_pbs("H"), Job("pending", "it is held")),
    (of_pbs("R", "resources_used.walltime = 00:10:00"),
     Job("running", "", "00:10:00 of 01:00:00")),
    (of_pbs("E"), Job("ending")),
    (of_pbs("S"), Job("running", "it is suspended")),
    (of_pbs("F", "Exit_status = 0", "comment = Job run at Sun Nov 22 at 10:00 and finished"),
     Job("ended", "its processes ended", "Job run at Sun Nov 22 at 10:00 and finished")),
    (of_pbs("F", "Exit_status = -29"), Job("ended", "its time was over")),
    (of_pbs("F", "Exit_status = 271"), Job("ended", "it was cancelled")),
    (of_pbs("F", "Exit_status = 265"), Job("ended", "signal 9 ended it")),
    (of_pbs("F", "Exit_status = 3"), Job("ended", "exit status 3")),
    (of_pbs("F"), Job("ended", "it never ran")),
    (of_pbs("M"), Job("ended", "it was moved to another server")),
    (of_pbs("C", "exit_status = 0", "Exit_status = -11"), Job("ended", "its time was over")),
    (of_pbs("R", "Account_Name = x\n    job_state = F"), Job("running")),
    ("qstat: Unknown Job Id 1234.pbs01", Job("ended", "PBS knows nothing of it any more")),
    ("qstat: Unknown Job Id Error 1234.srv", Job("ended", "PBS knows nothing of it any more")),
    ("Connection refused\nqstat: cannot connect to server pbs01 (errno=15010)",
     Job("unknown", "Connection refused qstat: cannot connect to server pbs01 (errno=15010)")),
]  # fmt: skip

LSF_JOBS = [
    ("PEND|New job is waiting for scheduling;|-|-|-\n",
     Job("pending", "New job is waiting for scheduling")),
    ("PEND|Job's requirements for a|b not satisfied: 3 hosts;|-|-|-\n",
     Job("pending", "Job's requirements for a|b not satisfied: 3 hosts")),
    ("PEND|-|-|-|-", Job("pending", "it is in the queue")),
    ("PSUSP|-|-|-|-", Job("pending", "it is held")),
    ("PROV|-|-|-|-", Job("pending", "it is in the queue")),
    ("RUN|-|0:58 L|-|-\n", Job("running", "", "0:58 left")),
    ("RUN|-|-|-|-\n", Job("running")),
    ("USUSP|-|0:58 L|-|-\n", Job("running", "it is suspended", "0:58 left")),
    ("UNKWN|-|-|-|-\n", Job("running", "its host does not answer")),
    ("DONE|-|-|-|-\n", Job("ended", "its processes ended")),
    ("EXIT|-|-|TERM_RUNLIMIT: job killed after reaching LSF run time limit|140\n",
     Job("ended", "its time was over", "exit code 140")),
    ("EXIT|-|-|TERM_OWNER: job killed by owner|130\n",
     Job("ended", "it was cancelled", "exit code 130")),
    ("EXIT|-|-|TERM_SWAP: job killed after reaching LSF swap usage limit|130\n",
     Job("ended", "TERM_SWAP: job killed after reaching LSF swap usage limit",
         "exit code 130")),
    ("EXIT|-|-|-|3\n", Job("ended", "its processes failed", "exit code 3")),
    ("Job <77> is not found", Job("ended", "LSF knows nothing of it any more")),
    ("LSF is down. Please wait ...", Job("unknown", "LSF is down. Please wait ...")),
    ("batch system daemon not responding ... still trying\nRUN|-|-|-|-\n", Job("running")),
    ("NEW|-|-|-|-", Job("unknown", "NEW|-|-|-|-")),
]  # fmt: skip

LIST = """\
job-ID  prior   name       user         state submit/start at     queue           slots ja-task-ID
---------------------------------------------------------------------------------------------------
     31 0.55500 tnt-1a2b3c ada          {state:5} 11/22/2026 10:00:00 {queue}        2
    131 0.55500 a job      ada          qw    11/22/2026 10:00:00                     1 1-9:1
"""


def in_list(state: str) -> str:
    return LIST.format(state=state, queue="" if "q" in state else "all.q@node1")


GRID_ENGINE_LISTS = [
    (in_list("qw"), Job("pending", "it is in the queue")),
    (in_list("hqw"), Job("pending", "it is held")),
    (in_list("Rq"), Job("pending", "it is in the queue")),
    (in_list("Eqw"), Job("pending", "it is in error")),
    *((in_list(state), Job("running")) for state in ("t", "r", "Rr", "hr")),
    (in_list("dr"), Job("ending", "it was cancelled")),
    *((in_list(state), Job("running", "it is suspended")) for state in "sS"),
    ("", Job("ended")),
    (in_list("r").replace(" 31 ", " 32 "), Job("ended")),
    ("error: commlib error: got select error (Connection refused)\nerror: unable to send "
     'message to qmaster using port 6444 on host "master": got send error',
     Job("unknown", "error: commlib error: got select error (Connection refused) error: unable "
         'to send message to qmaster using port 6444 on host "master": got send error')),
]  # fmt: skip
GRID_ENGINE_REASONS = [
    ('scheduling info:            cannot run in PE "mpi" because it only offers 0 slots\n',
     'cannot run in PE "mpi" because it only offers 0 slots'),
    ('scheduling info:            queue instance "all.q@node1" dropped because it is full\n'
     "                            All queues dropped because of overload or full\n",
     'queue instance "all.q@node1" dropped because it is full'),
    ("error reason    1:          11/22/2026 10:00:00 [0:31]: error: can't chdir to /home/ada\n"
     "scheduling info:            Job is in error state\n",
     "it is in error: 11/22/2026 10:00:00 [0:31]: error: can't chdir to /home/ada"),
    ("scheduling info:            (Collecting of scheduler job information is turned off)\n",
     "(Collecting of scheduler job information is turned off)"),
    ("", ""),
]  # fmt: skip


def account(failed: str, status: str) -> str:
    return (
        "=" * 62 + "\nqname        all.q               \nhostname     node1               \n"
        "group        ada                 \nproject      NONE                \njobname      "
        f"tnt-1a2b3c4d        \njobnumber    31                  \ngranted_pe   \nslots        2"
        f"\nfailed       {failed}\nexit_status  {status}\nru_wallclock 9s\nmaxvmem      1.2G\n"
    )


GRID_ENGINE_ACCOUNTS = [
    (account("0    ", "0                   "), Job("ended", "its processes ended")),
    (account("0", "3"), Job("ended", "exit status 3")),
    (account("37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", "137 (Killed)"),
     Job("ended", "its time was over", "qmaster enforced h_rt, h_cpu, or h_vmem limit")),
    (account("100 : assumedly after job", "137 (Killed)"),
     Job("ended", "it was cancelled", "assumedly after job")),
    (account("100 : assumedly after job", "139 (Segmentation fault)"),
     Job("ended", "exit status 139", "assumedly after job")),
    (account("10  : in pestart", "0"), Job("ended", "in pestart")),
    ("error: job id 31 not found", Job("ended", "Grid Engine has not said why")),
]  # fmt: skip

JOB_IDS = [
    (slurm, "Submitted batch job 41\n", "41"),
    (slurm, "sbatch: 2 of 3 projects used\nSubmitted batch job 41 on cluster c7\n", "41"),
    (pbs, "1234.pbs01\n", "1234"),
    (pbs, "500 core hours left\n1234.pbs01.site.org\n", "1234"),
    (pbs, "1234\n", "1234"),
    (lsf, "Job <77> is submitted to default queue <normal>.\n", "77"),
    (lsf, "3 hosts are free\nJob <77> is submitted to queue <normal>.\n", "77"),
    (sge, 'Your job 31 ("tnt-1a2b3c4d") has been submitted\n', "31"),
    (sge, 'quota: 12 of 50\nYour job 31 ("tnt-1") has been submitted\n', "31"),
]


@pytest.mark.parametrize(("system", "said", "job"), JOB_IDS)
def test_the_id_of_a_new_job(system, said, job):
    found = system.SYSTEM.answer.search(said)
    assert found is not None and found[1] == job


def listed(said: str) -> Job:
    return sge.parsed(said, "31")


def reason(said: str) -> str:
    return sge.reason("=" * 62 + "\njob_number:                 31\n" + said)


@pytest.mark.parametrize(
    ("read", "said", "found"),
    [
        *((slurm.parsed, *row) for row in SLURM_JOBS),
        *((pbs.parsed, *row) for row in PBS_JOBS),
        *((lsf.parsed, *row) for row in LSF_JOBS),
        *((listed, *row) for row in GRID_ENGINE_LISTS),
        *((reason, *row) for row in GRID_ENGINE_REASONS),
        *((sge.ended, *row) for row in GRID_ENGINE_ACCOUNTS),
    ],
)
def test_what_is_printed_is_understood(read, said, found):
    assert read(said) == found


WORDS = st.sampled_from(
    ["JobState=", "RUNNING", "PENDING", "Reason=", "job_state = ", "Exit_status = ", "\n\t", "\n",
     "    ", "PEND", "EXIT", "|", "-", "31", "qw", "r", "job-ID", "exit_status ", "failed ", ":",
     "137", "scheduling info:", "error", "²", "\x00"]
)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(WORDS | st.text(max_size=5), max_size=40).map("".join))
def test_whatever_is_printed_it_is_a_job(said):
    for job in (slurm.parsed(said), pbs.parsed(said), lsf.parsed(said), listed(said),
                sge.ended(said), Job("pending", sge.reason(said))):  # fmt: skip
        assert job.state in ("pending", "running", "ended", "unknown")
        assert isinstance(job.why, str) and "\n" not in str(job)
