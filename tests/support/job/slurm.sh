#!/bin/sh
# A cluster of Slurm's own daemons on this machine, for specs: munged, slurmctld and two slurmd.
#
#   slurm.sh start FOLDER   its files; prints the SLURM_CONF that srun, sbatch and scontrol need
#   slurm.sh stop FOLDER
#
# Both nodes are this host, so what OpenMPI keeps for each host is kept for each node, and nodes talk over lo.
# Jobs in partition "low" are preempted by those in "high", after GRACE seconds' notice. Needs root, and Debian's
# packages slurmctld, slurmd, slurm-client, munge and libpmix2.
set -eu
GRACE=30
HOST=$(hostname)

write_conf() { # FOLDER NODE
  mkdir -p "$1/$2" "$1/spool-$2" "$1/pmix-$2"
  cat > "$1/$2/slurm.conf" <<END
ClusterName=shardrt
SlurmctldHost=$HOST(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$1/munge.socket
CryptoType=crypto/munge
SlurmctldPort=$PORT
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool-%n
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd-%n.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdLogFile=$1/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$1/prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1
MpiDefault=none
ReturnToService=2
KillWait=30
MinJobAge=3600
NodeName=one,two NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((PORT + 1)),$((PORT + 2)) CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=low Nodes=one,two Default=YES MaxTime=1440 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=$GRACE
PartitionName=high Nodes=one,two MaxTime=1440 State=UP PriorityTier=2 PreemptMode=OFF
END
  echo "PMIxCliTmpDirBase=$1/pmix-$2" > "$1/$2/mpi.conf"
}

wait_for() { # SECONDS COMMAND...: until it holds
  left=$(($1 * 10))
  shift
  until "$@"; do
    left=$((left - 1))
    [ $left -gt 0 ] || return 1
    sleep 0.1
  done
}

are_idle() {
  [ "$(SLURM_CONF="$FOLDER/one/slurm.conf" sinfo -h -p low -t idle -o %D 2> "$FOLDER/sinfo.log")" = 2 ]
}

start() {
  FOLDER=$1
  PORT=$((20000 + $$ % 20000))
  mkdir -p "$FOLDER/state"
  for node in one two; do write_conf "$FOLDER" $node; done
  cat > "$FOLDER/prolog" <<END
#!/bin/sh
echo export OMPI_MCA_btl_vader_backing_directory=$FOLDER/pmix-\$SLURMD_NODENAME
echo export OMPI_MCA_btl_tcp_if_include=lo
END
  chmod 755 "$FOLDER/prolog"
  head -c 1024 /dev/urandom > "$FOLDER/munge.key"
  chmod 600 "$FOLDER/munge.key"
  munged --force --key-file="$FOLDER/munge.key" --socket="$FOLDER/munge.socket" --pid-file="$FOLDER/munged.pid" \
    --log-file="$FOLDER/munged.log" --seed-file="$FOLDER/munge.seed" 2> "$FOLDER/munged.out"
  slurmctld -f "$FOLDER/one/slurm.conf" > "$FOLDER/slurmctld.out" 2>&1
  for node in one two; do slurmd -N $node -f "$FOLDER/$node/slurm.conf" > "$FOLDER/slurmd-$node.out" 2>&1; done
  if ! wait_for 60 are_idle; then
    tail -n 5 "$FOLDER"/*.log "$FOLDER"/*.out >&2
    stop "$FOLDER"
    exit 1
  fi
  echo "$FOLDER/one/slurm.conf"
}

stop() {
  for name in slurmd-one slurmd-two slurmctld munged; do
    [ ! -f "$1/$name.pid" ] || kill "$(cat "$1/$name.pid")" 2> /dev/null || true
  done
  sleep 0.5
}

"$1" "$2"
