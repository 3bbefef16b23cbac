"""Plays the commands of PBS, LSF or Grid Engine: ``batch_shim.py FOLDER SYSTEM COMMAND WORDS...``.

Jobs are files in the folder, which ``COMMAND`` ``serve`` runs in the background. What is printed is
what the real commands print, as their documentation and public logs show it. Files of the folder:

    config.json     queues, hosts with their slots, ports for two daemons of Open MPI on this host
                    (see `tnt_notebook.cluster.launch.ports`); why jobs wait, or ""
    12.json         a job: what it asks for, where it runs, how it ended
    12.end          what ends it: ``cancelled`` or ``time``
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SERVER = "pbs-server"
FLAGS = {"pbs": "#PBS ", "lsf": "#BSUB ", "sge": "#$ "}
TAKEN = {
    "pbs": ("-N", "-S", "-j", "-o", "-r", "-l", "-q", "-A"),
    "lsf": ("-J", "-o", "-rn", "-n", "-R", "-gpu", "-W", "-q", "-P"),
    "sge": ("-N", "-S", "-j", "-o", "-cwd", "-r", "-pe", "-l", "-q", "-A"),
}
SUBMITTED = {
    "pbs": "{number}." + SERVER,
    "lsf": "Job <{number}> is submitted to queue <{queue}>.",
    "sge": 'Your job {number} ("{name}") has been submitted',
}
NO_QUEUE = {
    "pbs": "qsub: Unknown queue",
    "lsf": "{queue}: No such queue. Job not submitted.",
    "sge": "Unable to run job: Job was rejected because job requests unknown queue "
    '"{queue}".\nExiting.',
}
_MARK = "BATCH_SHIM_JOB"  # of all processes of a job
_PORTS = ("PRTE_MCA_oob_tcp_dynamic_ipv4_ports", "PMIX_MCA_ptl_base_ipv4_port",
          "PRTE_MCA_oob_tcp_dynamic_ipv6_ports")  # fmt: skip


# Submission ---------------------------------------------------------------------------------


def submit(here: Path, system: str, words: Sequence[str]) -> int:
    text = sys.stdin.read() if system == "lsf" else Path(words[0]).read_text()
    known = config(here)
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith(FLAGS[system]):
            name, *values = shlex.split(line.removeprefix(FLAGS[system]))
            if name not in TAKEN[system]:
                print(f"{name}: Illegal option. Job not submitted.", file=sys.stderr)
                return 255
            options.setdefault(name, []).append(" ".join(values))
    queue = options.get("-q", [known["queues"][0]])[0]
    if queue not in known["queues"]:
        print(NO_QUEUE[system].format(queue=queue), file=sys.stderr)
        return 255
    number = 1 + len(jobs(here))
    name = options["-J" if system == "lsf" else "-N"][0]
    write(here, {
        "id": number, "name": name, "queue": queue, "state": "pending",
        "hosts": HOSTS[system](options, known["hosts"]),
        "script": text, "output": options["-o"][0], "folder": os.getcwd(),
        "environment": dict(os.environ) if system == "lsf" else {},
    })  # fmt: skip
    print(SUBMITTED[system].format(number=number, queue=queue, name=name))
    return 0


def pbs_hosts(options: dict[str, list[str]], hosts: dict[str, int]) -> list[str]:
    """A name for each rank. Chunks lie on one host, unless they are to be scattered."""
    scatter = "place=scatter" in options["-l"]
    select = next(o for o in options["-l"] if o.startswith("select=")).removeprefix("select=")
    found: list[str] = []
    at = 0
    for chunk in select.split("+"):
        ranks = int(re.search(r"mpiprocs=(\d+)", chunk)[1])
        for _ in range(int(chunk.partition(":")[0])):
            found += [list(hosts)[at]] * ranks
            at += scatter
    return found


def lsf_hosts(options: dict[str, list[str]], hosts: dict[str, int]) -> list[str]:
    tile = re.search(r"span\[ptile=(\d+)\]", " ".join(options.get("-R", [])))
    ranks, most = int(options["-n"][0]), int(tile[1]) if tile else 99
    return [host for host in hosts for _ in range(most)][:ranks]


def sge_hosts(options: dict[str, list[str]], hosts: dict[str, int]) -> list[str]:
    slots = int(options["-pe"][0].split()[1])
    return [host for host, room in hosts.items() for _ in range(room)][:slots]


HOSTS = {"pbs": pbs_hosts, "lsf": lsf_hosts, "sge": sge_hosts}


# The server ---------------------------------------------------------------------------------


def serve(here: Path, system: str) -> None:
    running: dict[int, subprocess.Popen] = {}
    while True:
        held = config(here)["held"]
        for job in jobs(here):
            end, number = here / f"{job['id']}.end", job["id"]
            asked = end.read_text() if end.exists() else ""
            if job["state"] == "pending" and asked:
                write(here, {**job, "state": "ended", "how": asked, "code": 0})
            elif job["state"] == "pending" and not held:
                running[number] = start(here, system, job)
                write(here, {**job, "state": "running"})
            elif job["state"] == "running":
                if asked and running[number].poll() is None:
                    os.killpg(running[number].pid, signal.SIGTERM)
                    time.sleep(0.3)
                    kill_all(number)
                if (code := running[number].poll()) is not None:
                    kill_all(number)
                    how = asked or "itself"
                    write(here, {**job, "state": "ended", "how": how, "code": abs(code)})
        time.sleep(0.02)


def start(here: Path, system: str, job: dict) -> subprocess.Popen:
    number, hosts = str(job["id"]), job["hosts"]
    lines = [f"{h} {hosts.count(h)} {job['queue']}@{h} UNDEFINED" for h in dict.fromkeys(hosts)]
    nodes = here / f"nodes.{number}"
    nodes.write_text("\n".join(lines if system == "sge" else hosts) + "\n")
    script = here / f"script.{number}"
    script.write_text(job["script"])
    own = {
        "pbs": {"PBS_JOBID": f"{number}.{SERVER}", "PBS_ENVIRONMENT": "PBS_BATCH",
                "PBS_NODEFILE": str(nodes), "PBS_JOBNAME": job["name"], "NCPUS": "1"},
        "lsf": {"LSB_JOBID": number, "LSB_DJOB_HOSTFILE": str(nodes), "LSB_JOBNAME": job["name"],
                "LSB_DJOB_NUMPROC": str(len(hosts)), "LSB_HOSTS": " ".join(hosts)},
        "sge": {"JOB_ID": number, "PE_HOSTFILE": str(nodes), "NSLOTS": str(len(hosts)),
                "NHOSTS": str(len(lines)), "SGE_ROOT": str(here), "ARC": "lx-amd64", "PE": "mpi"},
    }[system]  # fmt: skip
    plain = {"PATH": f"{here}/bin:/usr/bin:/bin", "HOME": os.environ["HOME"], _MARK: number}
    plain |= dict(zip(_PORTS, ports(here, 0), strict=True))
    # PBS and LSF put the output in its place when the job has ended; close enough.
    with open(job["output"], "ab") as output:
        return subprocess.Popen(
            ["/bin/bash", str(script)], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True, cwd=os.environ["HOME"] if system == "pbs" else job["folder"],
            env={**job["environment"], **plain, **own},
        )  # fmt: skip


def kill_all(number: int) -> None:
    """As control groups do."""
    mark = f"{_MARK}={number}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path("/proc", pid, "environ").read_bytes().split(b"\0"):
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


def remote(here: Path, system: str, words: Sequence[str]) -> int:
    """Begins a program on another host of the job; all hosts are this one."""
    while words[0].startswith("-"):
        words = words[1:]
    host, *command = words
    number = os.environ[_MARK]
    if host not in json.loads((here / f"{number}.json").read_text())["hosts"]:
        print(f'host "{host}" is not a node in job <{number}>', file=sys.stderr)
        return 255
    with open(here / "remote.log", "a") as log:
        print(host, file=log)
    own = dict(os.environ)
    if system == "pbs":  # a program with its arguments, in the environment of the job
        own = {k: v for k, v in own.items() if k.startswith("PBS_") or k in ("HOME", _MARK)}
        own["PATH"] = "/usr/bin:/bin"
    else:
        command = ["/bin/sh", "-c", " ".join(command)]
    # What was told to the daemon on the first host is not for that on the second.
    for name, value in zip(_PORTS, ports(here, 1), strict=True):
        option = name.partition("_MCA_")[2]
        command[-1] = re.sub(rf'({option}) "?[\d,]+"?', rf"\g<1> {value}", command[-1])
    os.execvpe(command[0], command, own)


def ports(here: Path, host: int) -> list[str]:
    """Values of `_PORTS`. Several for a daemon: one that was used just now cannot be had."""
    mine = config(here)["ports"][host::2]
    daemons = ",".join(map(str, mine[1:]))
    return [daemons, str(mine[0]), daemons]


# What is told of jobs -----------------------------------------------------------------------


def pbs_qstat(here: Path, _: str, words: Sequence[str]) -> int:
    job, name = job_of(here, words[-1]), f"{words[-1]}.{SERVER}"
    if job is None:
        print(f"qstat: Unknown Job Id {name}", file=sys.stderr)
        return 153
    if job["state"] == "ended" and "-x" not in words:
        told = "Job has finished, use -x or -H to obtain historical job information"
        print(f"qstat: {name} {told}", file=sys.stderr)
        return 35
    letter = {"pending": "Q", "running": "R", "ended": "F"}[job["state"]]
    print(f"Job Id: {name}\n    Job_Name = {job['name']}\n    job_state = {letter}")
    print("    Variable_List = PBS_O_HOME=/home/user,PBS_O_LANG=C,\n\tPBS_O_LOGNAME=user")
    if job["state"] == "pending":
        print(f"    comment = Not Running: {config(here)['held']}")
    elif job["state"] == "ended":
        codes = {"cancelled": 271, "time": -29}
        print(f"    Exit_status = {codes.get(job['how'], job['code'])}")
    return 0


def pbs_qselect(here: Path, _: str, words: Sequence[str]) -> int:
    for job in alive(here, words):
        print(f"{job['id']}.{SERVER}")
    return 0


def lsf_bjobs(here: Path, _: str, words: Sequence[str]) -> int:
    if "-J" in words:
        said = [job["id"] for job in alive(here, words)]
    else:
        said = [lsf_state(here, job) for job in jobs(here) if str(job["id"]) == words[-1]]
    if not said:
        print(f"Job <{words[-1]}> is not found", file=sys.stderr)
        return 255
    print(*said, sep="\n")
    return 0


def lsf_state(here: Path, job: dict) -> str:
    if job["state"] != "ended":
        pending = job["state"] == "pending"
        return f"PEND|{config(here)['held']};|-|-|-" if pending else "RUN|-|-|-|-"
    if job["how"] == "itself" and not job["code"]:
        return "DONE|-|-|-|-"
    ends = {"cancelled": "TERM_OWNER: job killed by owner", "itself": "-",
            "time": "TERM_RUNLIMIT: job killed after reaching LSF run time limit"}  # fmt: skip
    return f"EXIT|-|-|{ends[job['how']]}|{job['code']}"


def sge_qstat(here: Path, _: str, words: Sequence[str]) -> int:
    found = [job for job in jobs(here) if job["state"] != "ended"]
    if words[:1] == ("-j",):
        print("=" * 62 + f"\njob_number:                 {words[1]}")
        print(f"scheduling info:            {config(here)['held']}")
        return 0
    if found:
        print("job-ID  prior   name       user         state submit/start at     queue      slots")
        print("-" * 83)
    for job in found:
        state, where = ("qw", "") if job["state"] == "pending" else ("r", f"{job['queue']}@n1")
        print(
            f"{job['id']:7} 0.55500 {job['name'][:10]:10} {'user':12} {state:5} "
            f"11/22/2026 10:00:00 {where:10} {len(job['hosts']):5}"
        )
        if "-r" in words:
            print(f"       Full jobname:     {job['name']}\n       Requested PE:     mpi")
    return 0


def sge_qacct(here: Path, _: str, words: Sequence[str]) -> int:
    job = job_of(here, words[1])
    if job is None or job["state"] != "ended":
        print(f"error: job id {words[1]} not found", file=sys.stderr)
        return 1
    ends = {"itself": "0    ", "cancelled": "100 : assumedly after job",
            "time": "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit"}  # fmt: skip
    code = job["code"] if job["how"] == "itself" else 137
    print("=" * 62 + f"\nqname        {job['queue']}\nhostname     node\nowner        user")
    print(f"jobname      {job['name']}\nfailed       {ends[job['how']]}\nexit_status  {code}")
    return 0


def cancel(here: Path, system: str, words: Sequence[str]) -> int:
    found = alive(here, words)
    for job in found:
        (here / f"{job['id']}.end").write_text("cancelled")
        print(f"Job <{job['id']}> is being terminated")
    return 0 if found else 1


COMMANDS = {
    "pbs": {"qsub": submit, "qstat": pbs_qstat, "qselect": pbs_qselect, "qdel": cancel,
            "pbs_tmrsh": remote},
    "lsf": {"bsub": submit, "bjobs": lsf_bjobs, "bkill": cancel, "blaunch": remote},
    "sge": {"qsub": submit, "qstat": sge_qstat, "qacct": sge_qacct, "qdel": cancel,
            "qrsh": remote},
}  # fmt: skip


def jobs(here: Path) -> list[dict]:
    files = sorted(here.glob("[0-9]*.json"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in files]


def job_of(here: Path, number: str) -> dict | None:
    return next((job for job in jobs(here) if str(job["id"]) == number), None)


def alive(here: Path, words: Sequence[str]) -> list[dict]:
    """Jobs of which a command names one: the name, or the number as PBS writes it."""
    there = [job for job in jobs(here) if job["state"] != "ended"]
    return [job for job in there if {job["name"], f"{job['id']}.{SERVER}"} & {*words}]


def config(here: Path) -> dict:
    return json.loads((here / "config.json").read_text())


def write(here: Path, job: dict) -> None:
    beside = here / f"{job['id']}.new"
    beside.write_text(json.dumps(job))
    beside.rename(here / f"{job['id']}.json")


if __name__ == "__main__":
    folder, system, command, *words = sys.argv[1:]
    if command == "serve":
        serve(Path(folder), system)
    else:
        sys.exit(COMMANDS[system][command](Path(folder), system, tuple(words)))
