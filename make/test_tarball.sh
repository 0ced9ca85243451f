#!/bin/sh
# Tries a tarball in bare Debian 12 and 13, each with nothing but an MPI and environment modules: test_tarball.sh TARBALL FOLDER.
# FOLDER keeps the two systems, which debootstrap makes, for the next time. Needs root.
set -eu
tarball=$1 folder=$2

[ "$(id -u)" = 0 ] || { echo "make test-tarball needs root: it makes a Debian 12 and a 13 of their own, by debootstrap and chroot"; exit 1; }

mkdir -p "$folder"

# In the system of a suite, with /proc, /sys and /dev.
inside() {
  root=$folder/$1
  shift
  unshare --mount --pid --fork sh -c 'root=$1; shift
    mount -t proc proc $root/proc; mount --rbind /sys $root/sys; mount --rbind /dev $root/dev; mount -t tmpfs tmpfs $root/dev/shm
    exec env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
      PRTE_ALLOW_RUN_AS_ROOT=1 OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe \
      chroot $root sh -euc "$*"' sh "$root" "$@"
}

for suite in bookworm trixie; do
  root=$folder/$suite
  if [ ! -e "$root/made" ]; then
    rm -rf "$root"
    debootstrap --variant=minbase "$suite" "$root" > "$folder/$suite.log"
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
    inside $suite 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openmpi-bin environment-modules' \
      >> "$folder/$suite.log" 2>&1
    touch "$root/made"
  fi
  rm -rf "$root/any where"
  mkdir "$root/any where"
  tar -xJf "$tarball" -C "$root/any where"
  inside $suite '
    cd "/any where"/shardrt-*
    bin/shardrt --version
    if [ -e lib/shardrt/shardrt-cuda.so ]; then # it is loaded, and says why there are no GPUs
      bin/shardrt --version | grep "^GPUs: CUDA; "
      if bin/shardrt --platform cuda share/doc/shardrt/recipes/layouts.lua; then exit 1; fi
    fi
    here=$PWD
    if LD_LIBRARY_PATH= ldd bin/shardrt lib/libshardrt.so.0 lib/shardrt/lib*.so* | grep "not found"; then exit 1; fi
    last() { lines=$1; shift; said=$("$@") || exit 1; echo "$said" | tail -n "$lines"; } # a pipe would hide the status
    cd /tmp
    last 2 "$here/bin/shardrt" --devices 8 "$here/share/doc/shardrt/recipes/layouts.lua"
    last 1 "$here/bin/shardrt" --devices 2 "$here/share/doc/shardrt/recipes/matmul.lua"
    last 2 "$here/bin/shardrt" run -n 2 --devices 2 "$here/share/doc/shardrt/recipes/layouts.lua"
    . /usr/share/modules/init/sh
    module use "$here/share/modulefiles"
    module load shardrt
    [ "$(command -v shardrt)" = "$here/bin/shardrt" ]
    last 1 mpirun -n 4 shardrt --devices 2 "$here/share/doc/shardrt/recipes/convenient_load.lua"'
  echo "$tarball runs on a bare $suite"
done
