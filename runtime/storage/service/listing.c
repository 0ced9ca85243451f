/* listing.c - which objects a place has, page by page. */
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "shardrt.h"
#include "storage/local/url.h"
#include "storage/service/ask.h"
#include "storage/service/listing.h"
#include "storage/service/services.h"

struct object {
  char *address;
  int64_t bytes;
};

struct shardrt_listing {
  struct object *objects;
  int64_t count, room;
  const char *prefix; /* during the call that fills it: others are not added */
};

void shardrt_listing_free(shardrt_listing *self) {
  if (self == NULL) return;
  for (int64_t i = 0; i < self->count; i++) alloc_free(self->objects[i].address);
  alloc_free(self->objects);
  alloc_free(self);
}

int64_t shardrt_listing_count(const shardrt_listing *self) {
  return self->count;
}

const char *shardrt_listing_address(const shardrt_listing *self, int64_t i) {
  return self->objects[i].address;
}

int64_t shardrt_listing_bytes(const shardrt_listing *self, int64_t i) {
  return self->objects[i].bytes;
}

/* Takes over the address, also where it fails. */
static int add_object(shardrt_listing *self, char *address, int64_t bytes) {
  if (address == NULL) return ALLOC_FAILED;
  if (self->count == self->room) {
    const int64_t room = self->room > 0 ? 2 * self->room : 64;
    struct object *larger = alloc_array((size_t)room, sizeof *larger);
    if (larger == NULL) {
      alloc_free(address);
      return ALLOC_FAILED;
    }
    if (self->count > 0) memcpy(larger, self->objects, (size_t)self->count * sizeof *larger);
    alloc_free(self->objects);
    self->objects = larger;
    self->room = room;
  }
  self->objects[self->count++] = (struct object){.address = address, .bytes = bytes};
  return SHARDRT_OK;
}

int listing_refuse(const char *shown, const char *why) {
  return error_set(SHARDRT_EIO, "%s: the server's listing %s", shown, why);
}

int listing_add(shardrt_listing *self, char *address, int64_t bytes) {
  const bool is_wanted = address == NULL || strncmp(address, self->prefix, strlen(self->prefix)) == 0;
  if (is_wanted && bytes >= 0) return add_object(self, address, bytes);
  alloc_free(address);
  return is_wanted ? listing_refuse(self->prefix, "has an object of a negative length") : SHARDRT_OK;
}

/* One of the places where pages began: that of page 1, 2, 4, 8, … in turn. A listing that comes back to where it was
 * comes back to it (R. P. Brent: An improved Monte Carlo factorization algorithm, BIT 20, 1980). */
struct mark {
  char *place; /* NULL: none; owned */
  int64_t pages, until;
};

static int check_place(struct mark *mark, const char *place, const char *shown) {
  if (mark->place != NULL && strcmp(mark->place, place) == 0)
    return listing_refuse(shown, "goes on where it is, or was before, without end");
  if (++mark->pages < mark->until) return SHARDRT_OK;
  alloc_free(mark->place);
  mark->place = alloc_text("%s", place);
  mark->pages = 0;
  mark->until = mark->until > 0 ? 2 * mark->until : 1;
  return mark->place != NULL ? SHARDRT_OK : ALLOC_FAILED;
}

/* A page, and where the next one begins. `asked`: the address that is asked for it. */
static int take_page(shardrt_listing *self, const struct service_lists *lists, const char *asked, const char *root,
                     const char *prefix, bool deep, const char *shown, char **next) {
  struct exchange_answer answer = {0};
  char *query = lists->query(prefix, deep, *next), *from = *next;
  *next = NULL;
  int code =
      query != NULL
          ? ask_server(&(struct ask){.method = "GET", .address = asked, .query = query, .may_miss = true}, &answer)
          : ALLOC_FAILED;
  if (code == SHARDRT_OK && answer.status < 300) code = lists->take(self, root, shown, &answer, next);
  alloc_free(from);
  alloc_free(query);
  exchange_free(&answer);
  return code;
}

static int fill_listing(shardrt_listing *self, const struct service_lists *lists, const char *prefix, bool deep,
                        const char *shown) {
  const size_t root = lists->root(prefix);
  if (root == 0)
    return error_set(SHARDRT_EINVAL, "%s: what is listed begins behind the name of a bucket, container or repository",
                     shown);
  const char *slash = strrchr(prefix + root - 1, '/');
  const size_t folder = slash != NULL ? (size_t)(slash + 1 - prefix) : root;
  char *asked = alloc_text("%.*s", (int)(lists->by_folder ? folder : root), prefix), *next = NULL;
  char *place = alloc_text("%.*s", (int)root, prefix);
  struct mark mark = {0};
  int code = asked != NULL && place != NULL ? SHARDRT_OK : ALLOC_FAILED;
  do {
    if (code == SHARDRT_OK) code = take_page(self, lists, asked, place, prefix + root, deep, shown, &next);
    if (code == SHARDRT_OK && next != NULL) code = check_place(&mark, next, shown);
  } while (code == SHARDRT_OK && next != NULL);
  alloc_free(asked);
  alloc_free(place);
  alloc_free(mark.place);
  alloc_free(next);
  return code;
}

int shardrt_listing_new(const char *prefix, int32_t deep, shardrt_listing **out) {
  const struct service_lists *lists = service_of(prefix)->lists;
  char *shown = url_shown(prefix);
  shardrt_listing *made = alloc_zeros(1, sizeof *made);
  *out = NULL;
  if (made != NULL) made->prefix = prefix;
  int code = shown == NULL || made == NULL ? ALLOC_FAILED
             : lists == NULL ? error_set(SHARDRT_EINVAL, "%s: its server is not asked which files it has", shown)
                             : fill_listing(made, lists, prefix, deep != 0, shown);
  if (made != NULL) made->prefix = NULL;
  alloc_free(shown);
  if (code == SHARDRT_OK)
    *out = made;
  else
    shardrt_listing_free(made);
  return code;
}

/* ---- of another process ----------------------------------------------------------------------------------------- */

shardrt_listing *listing_empty(void) {
  shardrt_listing *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) (void)ALLOC_FAILED;
  return made;
}

int listing_append(shardrt_listing *self, const char *address, int64_t bytes) {
  return add_object(self, alloc_text("%s", address), bytes);
}
