/* lines.h - moves and sums that are the same along mesh axes, as other rooms see them. The public functions are in
 * shardrt.h.
 *
 * A line is what devices a mesh has along some of its axes, at one place of all others. In a regular move each line
 * does the same by itself: its devices gather each other's blocks, get what one of them has, or add up their parts. */
#ifndef SHARDRT_LAYOUT_LINES_H
#define SHARDRT_LAYOUT_LINES_H

#include "shardrt.h"

/* The line that goes through a mesh position, and its place there. */
void lines_at(const shardrt_lines *lines, const shardrt_mesh *mesh, int64_t position, int64_t *line, int64_t *place);
/* The other way round. */
int64_t lines_position(const shardrt_lines *lines, const shardrt_mesh *mesh, int64_t line, int64_t place);

#endif
