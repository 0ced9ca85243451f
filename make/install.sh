#!/bin/sh
# Lays files under a folder and notes them there, in share/shardrt/installed, so that they can be removed again.
#
#   sh make/install.sh lay FOLDER       reads lines MODE:FILE:PLACE, with "link" as MODE for a link to FILE
#   sh make/install.sh remove FOLDER    removes what such calls have laid, and the folders that they made
set -e
what=$1 root=$2 list=$2/share/shardrt/installed

# Says what is done with a file; of documents and Lua files, which are many, only how many there are of each.
docs=0 lua=0
say() {
  case $2 in
  share/doc/*) docs=$((docs + 1)) ;;
  share/shardrt/lua/*) lua=$((lua + 1)) ;;
  *) echo "  $1  $root/$2" ;;
  esac
}
say_rest() {
  [ $docs = 0 ] || echo "  $1  $root/share/doc/shardrt ($docs files)"
  [ $lua = 0 ] || echo "  $1  $root/share/shardrt/lua ($lua files)"
}

# Makes a folder and those that it lies in, and notes the ones that were not there.
make_folder() {
  [ -d "$root/$1" ] && return
  make_folder "$(dirname "$1")"
  mkdir "$root/$1"
  echo "$1/" >> "$laid"
}

lay() {
  mkdir -p "$root"
  cat > "$rows"
  { [ ! -e "$list" ] || cat "$list"; cut -d: -f3 "$rows"; } > "$laid"
  for folder in share/shardrt $(sed 's|.*:||; s|/[^/]*$||' "$rows" | sort -u); do make_folder "$folder"; done
  sort -u "$laid" > "$list" # before any file is there, so that an install that breaks off can be removed, too
  while IFS=: read -r mode file place; do
    if [ "$mode" = link ]; then ln -sfn "$file" "$root/$place"; else install -m "$mode" "$file" "$root/$place"; fi
    say install "$place"
  done < "$rows"
  say_rest install
}

remove() {
  if [ ! -e "$list" ]; then
    echo "make uninstall: there is no $list, in which \`make install\` notes what it lays under this PREFIX" >&2
    exit 1
  fi
  sort -r "$list" > "$laid" # folders after what lies in them
  rm -f "$list"
  while read -r place; do
    case $place in
    */) rmdir "$root/$place" 2>/dev/null || true ;; # another program's files may lie there by now
    *) rm -f "$root/$place" && say 'remove ' "$place" ;;
    esac
  done < "$laid"
  say_rest 'remove '
}

rows=$(mktemp) laid=$(mktemp)
trap 'rm -f "$rows" "$laid"' EXIT
$what
