#!/bin/sh
# Looks for the libraries of make/libraries.txt and says what it found: libraries.sh FLAGS-FILE. $CC, $CPPFLAGS, $CFLAGS and
# $LDFLAGS are the user's, $WITHOUT lists keys of those that are to be left out ("all": every one that may be). A library is
# there where a program that calls it can be compiled and linked, with pkg-config's flags where it knows any.

table=${0%.sh}.txt
out=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

row() { printf "%-32s %-9s %-22s %-20s %-14s %s\n" "$@"; }
rows() { grep -v '^#' "$table"; }

for key in $WITHOUT; do
  [ "$key" = all ] || rows | grep -q "^$key " || { echo "WITHOUT: there is no library \"$key\" in $table" >&2; exit 1; }
done

# Whether a program with these headers and functions (HEADER FUNCTION a line, in $1) links with the other arguments.
links() {
  { printf '#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n'; sed 's/^\(.*\) .*/#include <\1>/' "$1"
    echo 'int main(void) { const void *all[] = {'; sed 's/.* \(.*\)/(const void *)\1,/' "$1"; echo '}; return all[0] == NULL; }'
  } > "$work/probe.c"
  shift
  $CC -w -fPIC $CPPFLAGS $CFLAGS $LDFLAGS -o "$work/probe" "$work/probe.c" "$@" 2>/dev/null
}

# What pkg-config says; else the library's name alone, and where a luajit of the user's own has its headers. The linker's
# folders, but the system's, are looked in when the program runs, too.
flags_of() {
  for module in $(echo "$modules" | tr , ' '); do
    flags=$(pkg-config --cflags --libs "$module" 2>/dev/null) || continue
    for flag in $flags; do
      case $flag in -L/usr/lib*) ;; -L*) flags="$flags -Wl,-rpath,${flag#-L}" ;; esac
    done
    return
  done
  flags=-l$link
  [ "$key" != luajit ] || flags="$flags -I$(dirname "$(dirname "$(command -v luajit)")")/include/luajit-2.1"
}

# Goes through the table: "candidates" tries all at once, "each" one by one.
go_through() {
  includes= libraries= without= names= needed=
  : > "$work/all"
  while read -r key name modules header function link debian rhel conda brings; do
    name=$(echo "$name" | tr _ ' ')
    case "$brings" in *needed) optional= ;; *) optional=1 ;; esac
    found=found
    case " $WITHOUT " in *" $key "* | *" all "*) [ -z "$optional" ] || found="left out" ;; esac
    if [ "$found" = found ]; then
      flags_of
      echo "$header $function" > "$work/one"
      [ "$1" = candidates ] || links "$work/one" $flags || found=missing
    fi
    row "$name" "$found" "$debian" "$rhel" "$conda" "$brings"
    if [ "$found" = found ]; then
      cat "$work/one" >> "$work/all"
      for flag in $flags; do
        case $flag in -I* | -D*) includes="$includes $flag" ;; *) libraries="$libraries $flag" ;; esac
      done
      [ -z "$optional" ] || names="$names, $name"
    elif [ -n "$optional" ]; then
      without="$without -DSHARDRT_WITHOUT_$(echo "$key" | tr a-z A-Z)"
    else
      needed="$needed $name"
    fi
  done <<ROWS
$(rows)
ROWS
}

go_through candidates > "$work/said"
links "$work/all" $includes $libraries || go_through each > "$work/said"
command -v luajit >/dev/null || needed="$needed luajit(the program)"

mpi=
for name in $MPI_FOUND; do
  case $name in OpenMPI) mpi="$mpi, OpenMPI (libmpi.so.40)" ;; MPICH) mpi="$mpi, MPICH and its like (libmpi.so.12)" ;; esac
done
openblas=missing
! $CC $CPPFLAGS $CFLAGS $LDFLAGS -shared -o "$work/probe" -l:libopenblas.so.0 2>/dev/null || openblas=found
{
  row library "" Debian RHEL conda "what it brings"
  cat "$work/said"
  row MPI "$([ -n "$mpi" ] && echo found || echo missing)" libopenmpi-dev openmpi-devel openmpi "jobs of several processes"
  row OpenBLAS "$openblas" libopenblas0-pthread openblas-threads libopenblas "products of matrices; opened when it is needed"
}
cat > "$out" <<FLAGS
INCLUDES :=$includes
LIBS :=$libraries -lm -ldl
MISSING :=$without
BUILT_IN := $(echo "$names" | sed 's/^, //')
MPI_BUILT := $(echo "$mpi" | sed 's/^, //')
NEEDED :=$needed
FLAGS
