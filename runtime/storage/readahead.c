#include "storage/readahead.h"

#include <assert.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "storage/local/ring.h"
#include "storage/remote/remote.h"
#include "system/team.h"

enum {
  EXTENTS = 8192,           /* room at first */
  PIECE_BYTES = 128 * 1024, /* one read at most: Linux's own read-ahead, unless somebody set it */
  PAGE_BYTES_LEAST = 4096,  /* so many pages of a piece at most */
  DEPTH = 64,               /* reads in flight by io_uring */
  THREADS = 32,             /* and by threads, with this one */
  PIECES = 1024             /* that the threads are given at once */
};

/* One read; a whole number of pages. */
struct piece {
  int file;
  size_t offset;
  size_t bytes;
};

struct ahead {
  int32_t wanted;            /* AHEAD_… */
  _Atomic(const char *) way; /* other threads may ask */
  size_t page;
  struct extents extents;
  int64_t room; /* the least that a cache of those that were looked at may hold */
  struct ring *ring;
  uint8_t *scratch; /* PIECE_BYTES, what all reads of the ring write to */
  struct team *team;
  _Atomic(struct remote_bringer *) bringer; /* of what is on servers, */
  atomic_bool ending;
  _Atomic int64_t downloaded; /* of which came so many bytes */
  struct piece *pieces;       /* PIECES of them, for the team */
  int64_t npieces;
};

int ahead_new(int32_t way, struct ahead **out) {
  struct ahead *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->wanted = way;
  made->room = INT64_MAX;
  made->page = (size_t)sysconf(_SC_PAGESIZE);
  made->scratch = alloc_array(PIECE_BYTES, 1);
  made->pieces = made->scratch == NULL ? NULL : alloc_array(PIECES, sizeof *made->pieces);
  int code = made->pieces == NULL ? ALLOC_FAILED : extents_set(EXTENTS, &made->extents);
  if (code < 0) {
    ahead_free(made);
    return code;
  }
  *out = made;
  return SHARDRT_OK;
}

void ahead_free(struct ahead *self) {
  if (self == NULL) return;
  const bool ended = ring_free(self->ring);
  remote_bringer_free(atomic_load(&self->bringer));
  team_free(self->team);
  extents_clear(&self->extents);
  alloc_free(self->pieces);
  if (ended) alloc_free(self->scratch); /* else it is left for good: the kernel may still write to it */
  alloc_free(self);
}

struct extents *ahead_extents(struct ahead *self) {
  return &self->extents;
}

const char *ahead_way(const struct ahead *self) {
  return atomic_load(&self->way);
}

/* ---- what is there already -------------------------------------------------------------------------------------- */

/* From `offset` on, which is a page's start, the bytes from the first page that is missing to the last one's end,
 * within the next `bytes` bytes: moves *offset there. 0: all are there. */
static size_t missing_pages(const struct ahead *self, const struct mapping *file, size_t *offset, size_t bytes) {
  unsigned char pages[PIECE_BYTES / PAGE_BYTES_LEAST];
  assert(*offset % self->page == 0 && bytes <= PIECE_BYTES && self->page >= PAGE_BYTES_LEAST);
  if (!mapping_tells(file) || mincore((void *)(file->data + *offset), bytes, pages) != 0) return bytes;
  size_t first = 0, end = (bytes + self->page - 1) / self->page;
  while (first < end && (pages[first] & 1) != 0) first++;
  while (end > first && (pages[end - 1] & 1) != 0) end--;
  *offset += first * self->page;
  return (end - first) * self->page;
}

/* The next piece of an extent from *at, a page's start, on of which something is missing, as far as can be told; moves
 * *at behind it. False: there is none. */
static bool next_piece(const struct ahead *self, const struct extent *e, size_t *at, struct piece *out) {
  const size_t stop = e->offset + e->bytes;
  while (*at < stop) {
    out->offset = *at;
    out->bytes = missing_pages(self, e->file, &out->offset, stop - *at < PIECE_BYTES ? stop - *at : PIECE_BYTES);
    *at += PIECE_BYTES;
    if (out->bytes > 0) return true;
  }
  return false;
}

static size_t page_start(const struct ahead *self, size_t offset) {
  return offset / self->page * self->page;
}

/* As ahead_is_missing, of one extent. From the first that is missing on, its file's pages come as they are asked for.
 */
static bool is_missing(const struct ahead *self, const struct extent *e) {
  if (e->file->remote != NULL) return !remote_has_bytes(e->file->remote, e->offset, e->offset + e->bytes);
  const bool tells = mapping_tells(e->file);
  size_t at = page_start(self, e->offset);
  struct piece p;
  if (tells && !next_piece(self, e, &at, &p)) return false;
  const int fd = mapping_descriptor(e->file);
  if (tells || fd < 0) return fd >= 0;
  uint8_t byte;
  const struct iovec to = {.iov_base = &byte, .iov_len = 1};
  return preadv2(fd, &to, 1, (off_t)(e->offset + e->bytes / 2), RWF_NOWAIT) != 1;
}

bool ahead_is_missing(struct ahead *self) {
  bool any = false;
  for (int64_t i = 0; i < self->extents.count; i++) {
    const struct remote *remote = self->extents.list[i].file->remote;
    any = is_missing(self, &self->extents.list[i]) || any;
    if (remote != NULL && remote_limit(remote) < self->room) self->room = remote_limit(remote);
  }
  self->extents.count = 0;
  return any;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Sets up what reads, once. */
static void set_up_reads(struct ahead *self) {
  if (ahead_way(self) != NULL) return;
  const char *way = "none";
  if (self->wanted == AHEAD_RING && ring_new(DEPTH, &self->ring) == SHARDRT_OK) way = "io_uring";
  if (self->ring == NULL && team_new(THREADS - 1, &self->team) == SHARDRT_OK) way = "threads";
  atomic_store(&self->way, way);
}

static void read_piece(void *context, int64_t number) {
  struct piece *p = (struct piece *)context + number;
  uint8_t thrown_away[PIECE_BYTES];
  if (pread(p->file, thrown_away, p->bytes, (off_t)p->offset) < 0) p->bytes = 0; /* nobody has read them */
}

/* Has the team read what it was given: how many bytes. */
static int64_t read_pieces(struct ahead *self) {
  if (self->npieces == 0) return 0;
  team_spread(self->team, read_piece, self->pieces, self->npieces);
  while (team_help(self->team)) {
  }
  team_stop(self->team); /* nothing is left to begin: waits for the last */
  int64_t total = 0;
  for (int64_t i = 0; i < self->npieces; i++) total += (int64_t)self->pieces[i].bytes;
  self->npieces = 0;
  return total;
}

/* Begins one, or has those read that have come together: how many bytes are known to be read by this. */
static int64_t read_one(struct ahead *self, const struct piece *p) {
  if (self->ring != NULL) {
    ring_read(self->ring, p->file, p->offset, p->bytes, self->scratch);
  } else if (self->team != NULL) {
    self->pieces[self->npieces++] = *p;
    if (self->npieces == PIECES) return read_pieces(self);
  }
  return 0;
}

int64_t ahead_room(const struct ahead *self) {
  return self->room;
}

int64_t ahead_downloaded(const struct ahead *self) {
  return atomic_load(&self->downloaded);
}

/* What is on servers. */
static void bring(struct ahead *self) {
  bool any = false;
  for (int64_t i = 0; i < self->extents.count && !any; i++) any = self->extents.list[i].file->remote != NULL;
  if (!any) return;
  struct remote_bringer *bringer = atomic_load(&self->bringer);
  if (bringer == NULL && remote_bringer_new(&self->downloaded, &bringer) != SHARDRT_OK) return;
  atomic_store(&self->bringer, bringer);
  if (!atomic_load(&self->ending)) remote_bringer_add(bringer, &self->extents);
}

void ahead_forget(struct ahead *self) {
  struct remote_bringer *bringer = atomic_load(&self->bringer);
  if (bringer != NULL) remote_bringer_forget(bringer);
}

void ahead_end(struct ahead *self) {
  atomic_store(&self->ending, true);
  struct remote_bringer *bringer = atomic_load(&self->bringer);
  if (bringer != NULL) remote_bringer_end(bringer);
}

int64_t ahead_read(struct ahead *self) {
  int64_t total = 0;
  extents_merge(&self->extents);
  for (int64_t i = 0; i < self->extents.count; i++) {
    const struct extent *e = &self->extents.list[i];
    struct piece p;
    if (e->file->remote != NULL) continue;
    for (size_t at = page_start(self, e->offset); next_piece(self, e, &at, &p);) {
      p.file = mapping_descriptor(e->file);
      if (p.file < 0) break;
      set_up_reads(self);
      total += read_one(self, &p);
    }
  }
  bring(self);
  self->extents.count = 0;
  if (self->ring != NULL) total += (int64_t)ring_flush(self->ring);
  if (self->team != NULL) total += read_pieces(self);
  return total;
}
