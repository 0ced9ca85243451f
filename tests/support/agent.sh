#!/bin/sh
# agent.sh HOST COMMAND: runs the command on one of the hosts that hosts.sh made, as ssh would on others.
host=$1
shift
# shellcheck disable=SC2016
exec ip netns exec "$host" unshare --uts sh -c '
  echo "$0" >/proc/sys/kernel/hostname && mount --bind "$HOSTS_FOLDER/disk.$0" "$HOSTS_FOLDER/disk" && exec sh -c "$*"
' "$host" "$@"
