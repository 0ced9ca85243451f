#!/bin/sh
# hosts.sh COUNT COMMAND: runs the command on the first of COUNT hosts, host0, host1, …, made on this machine: each a
# network namespace with an interface eth0, joined by a bridge, with a hostname of its own and, from
# $HOSTS_FOLDER/disk.HOST, a folder of its own in $HOSTS_FOLDER/disk.
#
# All of it stands in namespaces (of processes, mounts and networks) that nothing outside can see, and that the kernel
# ends with every process in them when this script ends, however it does; it is ended when the process HOSTS_OWNER is no
# more. The machine's own network is not touched.
#
# When the command makes the file $HOSTS_FOLDER/ready, the link of the host HOSTS_DOWN, if it is given, is set down
# HOSTS_AFTER seconds later; the file `seconds` then says how long after that (or after `ready`) the command went on,
# and the file `left` which processes it left behind.
if [ "$1" != inside ]; then
  while kill -0 "$HOSTS_OWNER" && kill -0 $$; do sleep 0.5; done 2>/dev/null && kill -9 $$ 2>/dev/null &
  exec unshare --net --mount --pid --fork --kill-child --mount-proc sh "$0" inside "$@"
fi
shift
count=$1
command=$2
trap 'exit 143' TERM INT

now() { cut -d' ' -f1 /proc/uptime; }

make_hosts() {
  mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm || return 1
  mkdir -p "$HOSTS_FOLDER/disk" "$HOSTS_FOLDER/tmp"
  ip link add switch type bridge && ip link set switch up || return 1
  i=0
  while [ "$i" -lt "$count" ]; do
    mkdir -p "$HOSTS_FOLDER/disk.host$i"
    ip netns add "host$i" && ip link add "port$i" type veth peer name eth0 netns "host$i" &&
      ip link set "port$i" master switch up && ip -n "host$i" address add "10.77.0.$((i + 1))/24" dev eth0 &&
      ip -n "host$i" link set lo up && ip -n "host$i" link set eth0 up || return 1
    i=$((i + 1))
  done
}

watch() {
  while [ ! -e "$HOSTS_FOLDER/ready" ]; do sleep 0.05; done
  if [ -n "$HOSTS_DOWN" ]; then
    sleep "$HOSTS_AFTER"
    ip link set "port${HOSTS_DOWN#host}" down
  fi
  now >"$HOSTS_FOLDER/begun"
}

# The command lines of what runs beside this script and its parts; of what has ended there is none.
others() {
  for process in /proc/[0-9]*; do
    line=$(tr '\0' ' ' 2>/dev/null <"$process/cmdline")
    case $line in '' | "sh $0 "*) ;; *) echo "$line" ;; esac
  done
}

make_hosts || exit 125
watch &
watcher=$!
TMPDIR=$HOSTS_FOLDER/tmp tests/support/agent.sh host0 "$command"
status=$?
if [ -e "$HOSTS_FOLDER/begun" ]; then
  echo "$(now) $(cat "$HOSTS_FOLDER/begun")" | awk '{ print $1 - $2 }' >"$HOSTS_FOLDER/seconds"
fi
kill "$watcher" 2>/dev/null
wait "$watcher"
tries=100
while left=$(others) && [ -n "$left" ] && [ "$tries" -gt 0 ]; do # what is being ended is given time to go
  tries=$((tries - 1))
  sleep 0.1
done
echo "$left" >"$HOSTS_FOLDER/left"
exit "$status"
