#include "comm/last.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/list.h"

/* Milliseconds. */
enum {
  STEP = 2,
  LISTEN = 400, /* for others that fail, too */
  SETTLE = 40,  /* of these at least, so that one who spoke already is heard even when all have failed */
  LEAD = 100,   /* for others to print what they have to say that is different */
  KILLED = 1000 /* for the one that ends the job to do so */
};

static void rest(void) {
  nanosleep(&(struct timespec){.tv_nsec = STEP * 1000000L}, NULL);
}

/* What makes two messages the same: all but the place in the recipe ("recipe.lua:12: ") that they begin with. */
static uint64_t message_hash(const char *message) {
  for (const char *at = strchr(message, ':'); at != NULL; at = strchr(at + 1, ':')) {
    const char *end = at + 1 + strspn(at + 1, "0123456789");
    if (end > at + 1 && end[0] == ':' && end[1] == ' ') return hash_text(0, end + 2);
    if (memchr(message, ' ', (size_t)(end - message)) != NULL) break; /* this is no place any more */
  }
  return hash_text(0, message);
}

/* Hears who else fails; returns how many of the others. */
static int32_t listen(notes *n) {
  int32_t failed = 0;
  for (int waited = 0; waited < LISTEN; waited += STEP) {
    notes_take(n);
    failed = 0;
    for (int32_t p = 0; p < n->count; p++) failed += p != n->index && n->peers[p].has_failed;
    if (failed == n->count - 1 && waited >= SETTLE) break;
    rest();
  }
  return failed;
}

/* In one write, so that nothing comes between. */
static void print(const char *text, size_t length) {
  while (length > 0) {
    ssize_t written = write(STDERR_FILENO, text, length);
    if (written < 0 && errno != EINTR) return;
    if (written > 0) {
      text += written;
      length -= (size_t)written;
    }
  }
}

static void speak(const notes *n, const bool *alike, const char *message) {
  if (message[0] == '\0') return;
  char who[256] = "";
  if (n->count > 1) {
    int32_t count = 0;
    for (int32_t p = 0; p < n->count; p++) count += alike[p];
    if (count == n->count)
      snprintf(who, sizeof who, "all %d processes: ", n->count);
    else {
      size_t used = list_numbers(who, sizeof who - 32, "process", "processes", alike, n->count);
      snprintf(who + used, sizeof who - used, " of %d: ", n->count);
    }
  }
  char text[8192];
  int length = snprintf(text, sizeof text, "shardrt: %s%s\n", who, message);
  if (length >= (int)sizeof text) {
    length = sizeof text - 1;
    text[length - 1] = '\n';
  }
  if (length > 0) print(text, (size_t)length);
}

/* Agrees with the others that fail on who prints, prints, and leaves the end to the lowest process that prints. */
static void speak_together(notes *n, const char *message, bool *alike) {
  uint64_t hash = message_hash(message);
  notes_tell(n, COMM_FAILED, hash);
  listen(n);
  int32_t speaker = n->index;
  bool is_said = false, is_first = true, is_alone = true;
  for (int32_t p = 0; p < n->count; p++) {
    const notes_peer *peer = &n->peers[p];
    alike[p] = p == n->index || (peer->has_failed && peer->failed == hash);
    if (alike[p] && p < speaker) speaker = p;
    if (alike[p] && peer->has_spoken) is_said = true;
    if (peer->has_failed && p < n->index) is_first = false;
    if (peer->has_failed && !alike[p]) is_alone = false;
  }
  if (!is_said && speaker == n->index) {
    notes_tell(n, COMM_SPEAKING, hash);
    speak(n, alike, message);
    is_said = true;
    for (int waited = 0; waited < LEAD && !is_alone; waited += STEP) rest();
    if (is_first || is_alone) return;
  }
  for (int waited = 0; waited < KILLED; waited += STEP) { /* to be ended by another */
    notes_take(n);
    rest();
  }
  if (!is_said && !n->peers[speaker].has_spoken) speak(n, alike, message);
}

void last_words(notes *n, int status, const char *message) {
  fflush(NULL);
  bool *alike = alloc_zeros((size_t)n->count, sizeof *alike);
  if (alike != NULL) speak_together(n, message, alike);
  alloc_free(alike);
  n->transport->kill(status);
}
