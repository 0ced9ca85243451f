# runtime/shardrt.h with its parts in place of its #include lines: one file that needs no other, as it is installed. A part
# loses its guard, and its name at the top: "/* array_api.h - arrays: a part of shardrt.h. */" becomes "/* ---- arrays */".

function put(line) {
  if (line != "" || last != "") print line
  last = line
}

function put_part(path,   line, held, lines) {
  while ((getline line < path) > 0) {
    if (line ~ /^#include "|_API_H$/) continue
    if (lines == 0) sub(/^\/\* [a-z_]+\.h - /, "/* ---- ", line)
    if (lines <= 1 && sub(/: a part of shardrt\.h\./, "", line) && line !~ /\*\/$/) line = line "."
    if (lines++ > 0) put(held)
    held = line # the last line, the guard's #endif, stays behind
  }
  if (lines == 0) exit failed = 1
}

/^#include "/ {
  put_part("runtime/" substr($2, 2, length($2) - 2))
  next
}
!/clang-format/ { put($0) }
END { exit failed }
