"""Plays the commands of PBS, LSF or Grid Engine: ``batch_shim.py FOLDER SYSTEM COMMAND WORDS...``.

Jobs are files in the folder, which ``COMMAND`` ``serve`` runs in the background. What is printed is
what the real commands print, as their documentation and public logs show it. Files of the folder:

    config.json     queues, hosts with their slots, ports for two daemons of Open MPI on this host
                    (see `tnt_notebook.cluster.ports`); why jobs wait, or null
    12.json         a job: what it asks for, where it runs, how it ended
    12.end          what ends it: ``cancelled`` or ``time``
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

SERVER = "pbs-server"
FLAGS = {"pbs": "#PBS", "lsf": "#BSUB", "sge": "#$"}
TAKEN = {"pbs": "NSjorlqA", "lsf": ("J", "o", "n", "R", "gpu", "W", "q", "P"),
         "sge": ("N", "S", "j", "o", "r", "pe", "l", "q", "A")}  # fmt: skip
_MARK = "BATCH_SHIM_JOB"  # of all processes of a job
_PORTS = ("PRTE_MCA_oob_tcp_dynamic_ipv4_ports", "PMIX_MCA_ptl_base_ipv4_port",
          "PRTE_MCA_oob_tcp_dynamic_ipv6_ports")  # fmt: skip


def main(folder: str, system: str, command: str, *words: str) -> int:
    here = Path(folder)
    if command == "serve":
        return serve(here, system)
    if command in ("qsub", "bsub"):
        return submit(here, system, words)
    if command in ("pbs_tmrsh", "blaunch", "qrsh"):
        return remote(here, system, words)
    return ANSWERS[system, command](here, list(words))


# Submission ---------------------------------------------------------------------------------


def submit(here: Path, system: str, words: tuple[str, ...]) -> int:
    text = sys.stdin.read() if system == "lsf" else Path(words[0]).read_text()
    known = config(here)
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.startswith(FLAGS[system] + " "):
            continue
        name, *values = shlex.split(line.removeprefix(FLAGS[system]))
        if name in ("-cwd", "-rn"):
            continue
        if name.lstrip("-") not in TAKEN[system] or not values:
            return refused(system, name)
        options.setdefault(name.lstrip("-"), []).append(" ".join(values))
    queue = options.get("q", [known["queues"][0]])[0]
    if queue not in known["queues"]:
        return refused(system, None, queue)
    hosts = HOSTS[system](options, known["hosts"])
    number = 1 + len(jobs(here))
    name = options["J" if system == "lsf" else "N"][0]
    job = {
        "id": number, "name": name, "queue": queue, "state": "pending", "hosts": hosts,
        "script": text, "output": options["o"][0], "folder": os.getcwd(), "limit": limit(options),
        "environment": dict(os.environ) if system == "lsf" else {},
    }  # fmt: skip
    write(here, job)
    print({"pbs": f"{number}.{SERVER}",
           "lsf": f"Job <{number}> is submitted to queue <{queue}>.",
           "sge": f'Your job {number} ("{name}") has been submitted'}[system])  # fmt: skip
    return 0


def refused(system: str, option: str | None, queue: str = "") -> int:
    what = {
        "pbs": (f"qsub: invalid option -- '{option}'", "qsub: Unknown queue", 170),
        "lsf": (f"{option}: Illegal option. Job not submitted.",
                f"{queue}: No such queue. Job not submitted.", 255),
        "sge": (f'qsub: Unknown option "{option}"', "Unable to run job: Job was rejected because "
                f'job requests unknown queue "{queue}".\nExiting.', 1),
    }[system]  # fmt: skip
    print(what[0] if option else what[1], file=sys.stderr)
    return what[2]


def limit(options: dict[str, list[str]]) -> str:
    said = [o.partition("=")[2] for o in options.get("l", []) if "time=" in o or "_rt=" in o]
    return (said or options.get("W", [""]))[0]


def pbs_hosts(options: dict[str, list[str]], hosts: dict[str, int]) -> list[str]:
    """A name for each rank. Chunks lie on one host, unless they are to be scattered."""
    scatter = "place=scatter" in options["l"]
    select = next(o for o in options["l"] if o.startswith("select=")).removeprefix("select=")
    found: list[str] = []
    at = 0
    for chunk in select.split("+"):
        ranks = int(re.search(r"mpiprocs=(\d+)", chunk)[1])
        for _ in range(int(chunk.partition(":")[0])):
            found += [list(hosts)[at]] * ranks
            at += scatter
    return found


def lsf_hosts(options: dict[str, list[str]], hosts: dict[str, int]) -> list[str]:
    tile = re.search(r"span\[ptile=(\d+)\]", " ".join(options.get("R", [])))
    ranks, most = int(options["n"][0]), int(tile[1]) if tile else 99
    return [host for host in hosts for _ in range(most)][:ranks]


def sge_hosts(options: dict[str, list[str]], hosts: dict[str, int]) -> list[str]:
    slots = int(options["pe"][0].split()[1])
    return [host for host, room in hosts.items() for _ in range(room)][:slots]


HOSTS = {"pbs": pbs_hosts, "lsf": lsf_hosts, "sge": sge_hosts}


# The server ---------------------------------------------------------------------------------


def serve(here: Path, system: str) -> int:
    running: dict[int, subprocess.Popen] = {}
    while True:
        held = config(here)["held"]
        for job in jobs(here):
            end, number = here / f"{job['id']}.end", job["id"]
            if job["state"] == "pending" and end.exists():
                write(here, {**job, "state": "ended", "how": end.read_text(), "code": 0})
            elif job["state"] == "pending" and not held:
                running[number] = start(here, system, job)
                write(here, {**job, "state": "running"})
            elif job["state"] == "running":
                asked = end.read_text() if end.exists() else ""
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
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"{_MARK}={number}".encode() in Path("/proc", pid, "environ").read_bytes().split(
                b"\0"
            ):
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass


def remote(here: Path, system: str, words: tuple[str, ...]) -> int:
    """Begins a program on another host of the job; all hosts are this one."""
    while words[0].startswith("-"):
        words = words[1:]
    host, *command = words
    number = os.environ[_MARK]
    job = json.loads((here / f"{number}.json").read_text())
    if host not in job["hosts"]:
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
    free = config(here)["ports"]
    mine = free[host::2]
    daemons = ",".join(map(str, mine[1:]))
    return [daemons, str(mine[0]), daemons]


# What is told of jobs -----------------------------------------------------------------------


def pbs_qstat(here: Path, words: list[str]) -> int:
    number = words[-1]
    job = next((j for j in jobs(here) if str(j["id"]) == number), None)
    name = f"{number}.{SERVER}"
    if job is None:
        print(f"qstat: Unknown Job Id {name}", file=sys.stderr)
        return 153
    if job["state"] == "ended" and "-x" not in words:
        told = "Job has finished, use -x or -H to obtain historical job information"
        print(f"qstat: {name} {told}", file=sys.stderr)
        return 35
    letter = {"pending": "Q", "running": "R", "ended": "F"}[job["state"]]
    print(f"Job Id: {name}\n    Job_Name = {job['name']}\n    job_state = {letter}")
    print(f"    queue = {job['queue']}\n    Resource_List.walltime = {job['limit'] or '01:00:00'}")
    print("    Variable_List = PBS_O_HOME=/home/user,PBS_O_LANG=C,\n\tPBS_O_LOGNAME=user")
    if job["state"] == "pending":
        print(f"    comment = Not Running: {held(here)}")
    elif job["state"] == "running":
        print("    resources_used.walltime = 00:00:04\n    comment = Job run at Mon")
    else:
        codes = {"cancelled": 271, "time": -29}
        print(f"    Exit_status = {codes.get(job['how'], job['code'])}")
    return 0


def pbs_qselect(here: Path, words: list[str]) -> int:
    for job in alive(here, words[1]):
        print(f"{job['id']}.{SERVER}")
    return 0


def pbs_qdel(here: Path, words: list[str]) -> int:
    for word in words:
        (here / f"{word.partition('.')[0]}.end").write_text("cancelled")
    return 0


def lsf_bjobs(here: Path, words: list[str]) -> int:
    if "-J" in words:
        name = words[words.index("-J") + 1]
        for job in alive(here, name):
            print(job["id"])
        if not alive(here, name):
            print(f"Job <{name}> is not found", file=sys.stderr)
            return 255
        return 0
    job = next((j for j in jobs(here) if str(j["id"]) == words[-1]), None)
    if job is None:
        print(f"Job <{words[-1]}> is not found", file=sys.stderr)
        return 255
    if job["state"] == "pending":
        print(f"PEND|{held(here)};|-|-|-")
    elif job["state"] == "running":
        print(f"RUN|-|{job['limit'] + ' L' if job['limit'] else '-'}|-|-")
    elif job["how"] == "itself" and not job["code"]:
        print("DONE|-|-|-|-")
    else:
        ends = {"cancelled": "TERM_OWNER: job killed by owner", "itself": "-",
                "time": "TERM_RUNLIMIT: job killed after reaching LSF run time limit"}  # fmt: skip
        print(f"EXIT|-|-|{ends[job['how']]}|{job['code']}")
    return 0


def lsf_bkill(here: Path, words: list[str]) -> int:
    found = alive(here, words[words.index("-J") + 1])
    for job in found:
        (here / f"{job['id']}.end").write_text("cancelled")
        print(f"Job <{job['id']}> is being terminated")
    if not found:
        print("No matching job found", file=sys.stderr)
    return 0 if found else 255


def sge_qstat(here: Path, words: list[str]) -> int:
    found = [job for job in jobs(here) if job["state"] != "ended"]
    if words[:1] == ["-j"]:
        job = next(job for job in found if str(job["id"]) == words[1])
        print("=" * 62 + f"\njob_number:                 {job['id']}\njob_name:  {job['name']}")
        print(f"scheduling info:            {held(here)}")
        return 0
    if found:
        print("job-ID  prior   name       user         state submit/start at     queue      slots")
        print("-" * 83)
    for job in found:
        state = "qw" if job["state"] == "pending" else "r"
        where = "" if state == "qw" else f"{job['queue']}@n1"
        print(
            f"{job['id']:7} 0.55500 {job['name'][:10]:10} {'user':12} {state:5} "
            f"11/22/2026 10:00:00 {where:10} {len(job['hosts']):5}"
        )
        if "-r" in words:
            print(f"       Full jobname:     {job['name']}\n       Requested PE:     mpi")
    return 0


def sge_qacct(here: Path, words: list[str]) -> int:
    job = next((j for j in jobs(here) if str(j["id"]) == words[1]), None)
    if job is None or job["state"] != "ended":
        print(f"error: job id {words[1]} not found", file=sys.stderr)
        return 1
    failed = {
        "itself": "0    ",
        "cancelled": "100 : assumedly after job",
        "time": "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit",
    }[job["how"]]
    code = job["code"] if job["how"] == "itself" else 137
    print("=" * 62 + f"\nqname        {job['queue']}\nhostname     node\nowner        user")
    print(f"jobname      {job['name']}\nfailed       {failed}\nexit_status  {code}")
    return 0


def sge_qdel(here: Path, words: list[str]) -> int:
    found = [job for word in words for job in alive(here, word)]
    for job in found:
        (here / f"{job['id']}.end").write_text("cancelled")
        print(f"user has registered the job {job['id']} for deletion")
    if not found:
        print(f'denied: job "{words[0]}" does not exist')
    return 0 if found else 1


ANSWERS = {
    ("pbs", "qstat"): pbs_qstat, ("pbs", "qselect"): pbs_qselect, ("pbs", "qdel"): pbs_qdel,
    ("lsf", "bjobs"): lsf_bjobs, ("lsf", "bkill"): lsf_bkill, ("sge", "qstat"): sge_qstat,
    ("sge", "qacct"): sge_qacct, ("sge", "qdel"): sge_qdel,
}  # fmt: skip
COMMANDS = {
    "pbs": ("qsub", "qstat", "qselect", "qdel", "pbs_tmrsh"),
    "lsf": ("bsub", "bjobs", "bkill", "blaunch"),
    "sge": ("qsub", "qstat", "qacct", "qdel", "qrsh"),
}


def jobs(here: Path) -> list[dict]:
    files = sorted(here.glob("[0-9]*.json"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in files]


def alive(here: Path, name: str) -> list[dict]:
    return [job for job in jobs(here) if job["name"] == name and job["state"] != "ended"]


def held(here: Path) -> str:
    return config(here)["held"] or ""


def config(here: Path) -> dict:
    return json.loads((here / "config.json").read_text())


def write(here: Path, job: dict) -> None:
    beside = here / f"{job['id']}.new"
    beside.write_text(json.dumps(job))
    beside.rename(here / f"{job['id']}.json")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
