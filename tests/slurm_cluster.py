"""A real Slurm of emulated GPU servers on one machine: loopback only, all state in a temporary folder, stopped at the end.

Needs the programs of Debian's packages slurm-wlm and munge; nothing of the system's own configuration is read or changed.
"""

import getpass
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "sinfo", "squeue")
FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where daemons are that a plain user's PATH leaves out."""

STARTS = iter(range(16_000 + os.getpid() % 100 * 100, 32_000, 20))
"""Where blocks of ports begin: below those that the system hands out, apart for processes of this machine."""

CONF = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
CredType=cred/munge
SlurmctldPort={port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmctldDebug=info
LogTimeFormat=iso8601_ms
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
MailProg=/bin/true
SchedulerType={scheduler}
SchedulerParameters={parameters}
PriorityType=priority/basic
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MinJobAge=3600
KillWait=2
{gres_types}
NodeName=n[0-{last}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] CPUs={cpus} RealMemory=2000{gres} State=UNKNOWN
PartitionName=all Nodes=n[0-{last}] Default=YES MaxTime=INFINITE State=UP
"""

SACCT = f"""\
#!{sys.executable}
# Accounting needs a database. This answers what submitit asks of sacct, from the controller's memory.
import re, subprocess, sys
print("JobID|State|NodeList")
for asked in (after for before, after in zip(sys.argv, sys.argv[1:]) if before == "-j"):
    done = subprocess.run(["scontrol", "--oneliner", "show", "job", asked], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        known = dict(re.findall(r"(\\w+)=(\\S*)", line))
        name = known["ArrayJobId"] + "_" + known["ArrayTaskId"] if "ArrayJobId" in known else known.get("JobId")
        if name:
            print(name, known["JobState"], known.get("NodeList", ""), sep="|")
"""


def missing() -> str | None:
    """Why a Slurm cannot be started here, or None."""
    absent = [name for name in PROGRAMS if find(name) is None]
    return f"not installed: {', '.join(absent)} (Debian: apt-get install slurm-wlm munge)" if absent else None


def find(program: str, path: str | None = None) -> str | None:
    return shutil.which(program, path=os.pathsep.join([path or os.environ.get("PATH", os.defpath), *FOLDERS]))


def version() -> str:
    """Of the Slurm that is installed."""
    done = subprocess.run([find("slurmctld") or "slurmctld", "-V"], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.split()[-1]


def free_ports(number: int) -> int:
    """The first of ``number`` consecutive ports of the loopback that nobody listens on now, and that this process did not get before."""
    while True:
        first = next(STARTS)
        with ExitStack() as stack:
            try:
                for port in range(first, first + number):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first


class SlurmFailed(Exception):
    """Slurm did not do in time what was asked of it; the message ends with the last lines of its logs."""


class Slurm:
    """Servers n0, n1, ... with ``gpus`` GPUs and ``cpus`` processors each, under ``scheduler`` (sched/builtin or sched/backfill).

    A context: entering starts the daemons and waits until all servers are idle, leaving stops them and removes their folder.
    """

    def __init__(self, servers: int = 1, gpus: int = 0, cpus: int = 2, scheduler: str = "sched/backfill",
                 parameters: str = "batch_sched_delay=0,bf_interval=1") -> None:
        self.servers = servers
        self.stack = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.folder.chmod(0o755)
        for name in ("run", "log", "state", "spool", "bin"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        port = free_ports(servers + 1)
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(CONF.format(
            host=platform.node().split(".")[0], user=getpass.getuser(), folder=self.folder, port=port, first_port=port + 1,
            last_port=port + servers, last=servers - 1, cpus=cpus, scheduler=scheduler, parameters=parameters,
            gres_types="GresTypes=gpu" if gpus else "", gres=f" Gres=gpu:{gpus}" if gpus else "",
        ))
        if gpus:
            for gpu in range(gpus):
                (self.folder / f"gpu{gpu}").touch()
            devices = f"{self.folder}/gpu[0-{gpus - 1}]"
            (self.folder / "gres.conf").write_text(f"NodeName=n[0-{servers - 1}] Name=gpu File={devices}\n")
        sacct = self.folder / "bin" / "sacct"
        sacct.write_text(SACCT)
        sacct.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which Slurm's commands find this cluster."""
        path = os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", os.defpath), *FOLDERS])
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": path}

    def __enter__(self) -> Self:
        try:
            run, log = self.folder / "run", self.folder / "log"
            self._daemon("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key", f"--socket={run}/munge.socket",
                         f"--pid-file={run}/munged.pid", f"--log-file={log}/munged.log", f"--seed-file={run}/munged.seed")
            self.wait_until((run / "munge.socket").exists, 10, "munged opens no socket")
            self._daemon("slurmctld", "-D")
            self.wait_until(lambda: self.asks("scontrol", "ping"), 20, "slurmctld does not answer")
            for server in range(self.servers):
                self._daemon("slurmd", "-D", "-N", f"n{server}")
            self.wait_until(lambda: self.tell("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * self.servers, 60,
                            "not all servers became idle")
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self.tell("squeue", "-h"):
                self.tell("scancel", f"--user={getpass.getuser()}")
                self.wait_until(lambda: not self.tell("squeue", "-h"), 15, "cancelled jobs do not end")
        finally:
            self.stack.close()

    def tell(self, *command: str, **more: str) -> str:
        """What a command of Slurm prints. Raises SlurmFailed when it fails."""
        done = self._run(command, more)
        if done.returncode:
            raise SlurmFailed(f"{' '.join(command)}: {done.stderr.strip()}\n{self._last_words()}")
        return done.stdout

    def asks(self, *command: str) -> bool:
        """Whether a command of Slurm succeeds."""
        return self._run(command, {}).returncode == 0

    def wait_until(self, reached: Callable[[], bool], seconds: float, otherwise: str) -> None:
        """Waits until ``reached()``. Raises SlurmFailed after so many seconds."""
        deadline = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > deadline:
                raise SlurmFailed(f"{otherwise} within {seconds} s\n{self._last_words()}")
            time.sleep(0.1)

    def log(self) -> str:
        return (self.folder / "log" / "slurmctld.log").read_text()

    def _run(self, command: tuple[str, ...], more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **more}
        words = [find(command[0], environment["PATH"]) or command[0], *command[1:]]
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False, cwd=self.folder)

    def _daemon(self, program: str, *words: str) -> None:
        with (self.folder / "log" / f"{program}.out").open("ab") as out:
            process = subprocess.Popen([find(program) or program, *words], env=self.environment, cwd=self.folder, stdout=out, stderr=out,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        self.stack.callback(stop, process)

    def _last_words(self) -> str:
        return "\n".join(f"{file.name}: {line}" for file in sorted((self.folder / "log").iterdir())
                         for line in file.read_text(errors="replace").splitlines()[-5:])


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
