"""A SLURM of one node with two GPUs that are none, on the loopback interface of an overlay."""

import re
import socket
import time
from pathlib import Path

from overlay import Overlay, Unavailable

STATE = "/srv/slurm"

# No systemd, no cgroups, no accounting: what a container in CI can run. A job that has ended is listed for 10 minutes.
# Timeouts are long: where other tests keep every core busy, a job that starts after 10 s counts as lost by default.
SLURM = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={state}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={state}/ctld
SlurmdSpoolDir={state}/spool
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.pid
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PropagateResourceLimits=NONE
ReturnToService=2
MinJobAge=600
BatchStartTimeout=300
MessageTimeout=100
TCPTimeout=60
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=1000000 Gres=gpu:fake:2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
GRES = "AutoDetect=off\nNodeName={host} Name=gpu Type=fake File={state}/gpu[0-1]\n"

# Any character device stands for a GPU where no cgroup guards devices.
START = f"""
set -euo pipefail
mkdir -p {STATE}/ctld {STATE}/spool
for gpu in 0 1; do mknod {STATE}/gpu$gpu c 1 3; done
head -c 1024 /dev/urandom >{STATE}/munge.key
chmod 400 {STATE}/munge.key
munged --force --key-file={STATE}/munge.key --socket={STATE}/munge.socket --pid-file={STATE}/munged.pid \\
    --log-file={STATE}/munged.log --seed-file={STATE}/munge.seed --num-threads=2
slurmctld
slurmd
"""

INSTALL = """
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends slurm-wlm slurm-client munge
"""


def start(overlay: Overlay, cores: int) -> None:
    """Install SLURM in the overlay and start it.

    Raises:
        Unavailable: apt cannot install it, or the node does not come up; the message has the programs' last words.
    """
    installed = overlay.call("bash", "-c", INSTALL)
    if installed.returncode:
        raise Unavailable(f"apt-get cannot install SLURM here: {installed.stdout[-500:]}")
    host = socket.gethostname().partition(".")[0]
    for name, text in {"slurm.conf": SLURM, "gres.conf": GRES}.items():
        # In the default place: the plugin's jobs forget SLURM_CONF.
        content = text.format(host=host, state=STATE, cores=cores)
        overlay.call("sh", "-c", f'mkdir -p /etc/slurm && printf %s "$1" >/etc/slurm/{name}', "sh", content)
    started = overlay.call("bash", "-c", START)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if "idle" in (state := overlay.call("sinfo", "--noheader", "--format=%T").stdout):
            return
        time.sleep(0.2)
    raise Unavailable(f"SLURM's node does not come up: {started.stdout[-500:]} {state[-500:]}")


def logs(overlay: Overlay) -> str:
    """The end of what SLURM's daemons wrote."""
    return overlay.call("sh", "-c", f"tail -n 40 {STATE}/*.log").stdout


def jobs(overlay: Overlay, folder: Path) -> list[dict[str, str]]:
    """The controller's record of every job that was submitted in `folder`, by field."""
    lines = overlay.call("scontrol", "--oneliner", "show", "jobs").stdout.splitlines()
    records = [dict(re.findall(r"(\w+(?::\w+)?)=(\S*)", line)) for line in lines if line.startswith("JobId=")]
    return [record for record in records if record["WorkDir"] == str(folder)]
