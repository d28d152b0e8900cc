"""A Slurm of one node for tests: munged, slurmctld and slurmd with keys, sockets and state in a folder of their own."""
import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path


def free_ports(count):
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


CONFIG = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
SlurmdPort={node}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=0
InactiveLimit=0
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


class OneNodeSlurm:
    """srun in `environment` reaches it. Ends with the `with` block."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.chmod(0o755)
        self.daemons = []
        self.environment = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"))

    def start(self, *command):
        log = open(self.folder / f"{Path(command[0]).name}.out", "w")
        self.daemons.append(subprocess.Popen([str(c) for c in command], env=self.environment, stdout=log, stderr=log))
        log.close()

    def __enter__(self):
        host = socket.gethostname().split(".")[0]
        controller, node = free_ports(2)
        (self.folder / "slurm.conf").write_text(CONFIG.format(host=host, controller=controller, node=node,
                                                              folder=self.folder, cpus=os.cpu_count(),
                                                              user=pwd.getpwuid(os.getuid()).pw_name))
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        munged = shutil.which("munged") or "/usr/sbin/munged"
        self.start(munged, "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                   f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munge.seed",
                   f"--log-file={self.folder}/munged.log")
        self.wait_for(lambda: (self.folder / "munge.socket").exists(), "munged")
        self.start("/usr/sbin/slurmctld", "-D", "-f", self.folder / "slurm.conf")
        self.start("/usr/sbin/slurmd", "-D", "-N", host, "-f", self.folder / "slurm.conf")
        self.wait_for(self.is_idle, "an idle node")
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def is_idle(self):
        done = subprocess.run(["sinfo", "--noheader", "--format=%T"], env=self.environment, capture_output=True,
                              text=True, timeout=30, check=False)
        return done.stdout.strip() == "idle"

    def wait_for(self, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = "\n".join(f"{p.name}: {p.read_text()[-2000:]}" for p in sorted(self.folder.glob("*.log")))
                self.__exit__()
                raise AssertionError(f"waited {seconds} s for {what}\n{logs}")
            time.sleep(0.1)

    def run(self, *command, timeout=120, **variables):
        environment = self.environment | {name: str(value) for name, value in variables.items()}
        return subprocess.run(["srun", *map(str, command)], env=environment, capture_output=True, text=True,
                              timeout=timeout, check=False)
