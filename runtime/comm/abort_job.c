#include "comm/abort_job.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/number_text.h"

/* Seconds. */
#define LISTEN 0.35 /* for others that fail, too */
#define DEFER  0.15 /* to a lower process that fails with the same message */
#define SETTLE 0.04 /* between the claim to print and the printing: of two claims the lower process's holds */
#define LEAD   0.15 /* for others to print what they have to say that is different */
#define FULL   5.0  /* for the reader of stderr to make room */
#define KILLED 1.0  /* for the one that prints to end the job */

/* Numbers of seconds ("4.2 s") are left out: every process has its own. */
static uint64_t hash_but_seconds(const char *text) {
  static const char digits[] = "0123456789";
  uint64_t hash = 0;
  while (text[0] != '\0') {
    size_t words = strcspn(text, digits), number = strspn(text + words, "0123456789.");
    const char *end = text + words + number;
    bool seconds = end[0] == ' ' && end[1] == 's' && !isalnum((unsigned char)end[2]);
    hash = hash_bytes(hash, text, seconds ? words : words + number);
    text = end;
  }
  return hash;
}

/* What makes two messages the same: all but the place in the recipe ("recipe.lua:12: ") that they begin with, and
 * numbers of seconds. */
static uint64_t message_hash(const char *message) {
  for (const char *at = strchr(message, ':'); at != NULL; at = strchr(at + 1, ':')) {
    const char *end = at + 1 + strspn(at + 1, "0123456789");
    if (end > at + 1 && end[0] == ':' && end[1] == ' ') return hash_but_seconds(end + 2);
    if (memchr(message, ' ', (size_t)(end - message)) != NULL) break; /* this is no place any more */
  }
  return hash_but_seconds(message);
}

struct quorum {
  bool *alike;       /* [count] who fails with the same message; this process does */
  int32_t lowest;    /* of these */
  int32_t speaker;   /* the lowest of these that claims to print; -1: none */
  bool is_everyone;  /* all processes fail, with whatever message */
  bool is_unanimous; /* nobody fails with another message */
};

static void hear_others(struct notes *n, uint64_t hash, struct quorum *q) {
  notes_receive(n);
  *q = (struct quorum){.alike = q->alike, .lowest = -1, .speaker = -1, .is_everyone = true, .is_unanimous = true};
  for (int32_t p = 0; p < n->count; p++) {
    const struct notes_peer *peer = &n->peers[p];
    q->alike[p] = p == n->index || (peer->has_failed && peer->failed == hash);
    if (q->alike[p] && q->lowest < 0) q->lowest = p;
    if (q->alike[p] && peer->has_spoken && q->speaker < 0) q->speaker = p;
    if (!q->alike[p] && peer->has_failed) q->is_unanimous = false;
    if (p != n->index && !peer->has_failed) q->is_everyone = false;
  }
}

/* Waits, hearing others. Ends early where a process below `below` claims to print, or where all have failed and
 * `or_everyone`. */
static void listen_to_others(struct notes *n, uint64_t hash, struct quorum *q, double seconds, int32_t below,
                             bool or_everyone) {
  double end = shardrt_clock() + seconds;
  do {
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    hear_others(n, hash, q);
    if (q->speaker >= 0 && q->speaker < below) return;
  } while (shardrt_clock() < end && !(or_everyone && q->is_everyone));
}

/* In one write, so that nothing comes between. Where stderr does not wait by itself (O_NONBLOCK) and is full, its
 * reader gets some time. */
static void print_to_stderr(const char *text, size_t length) {
  const double end = shardrt_clock() + FULL;
  while (length > 0) {
    ssize_t written = write(STDERR_FILENO, text, length);
    if (written < 0 && errno == EAGAIN && shardrt_clock() < end)
      poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, 100);
    else if (written < 0 && errno != EINTR)
      return;
    if (written > 0) {
      text += written;
      length -= (size_t)written;
    }
  }
}

static void print_message(const struct notes *n, const bool *alike, const struct last_say *say) {
  const char *message = say->message;
  if (message[0] == '\0') return;
  char who[256] = "";
  if (n->count > 1 && alike != NULL) {
    int32_t count = 0;
    for (int32_t p = 0; p < n->count; p++) count += alike[p];
    if (count == n->count)
      snprintf(who, sizeof who, "all %d processes: ", n->count);
    else {
      size_t used = number_text(who, sizeof who - 32, "process", "processes", alike, n->count);
      snprintf(who + used, sizeof who - used, " of %d: ", n->count);
    }
  }
  char text[8192];
  int length = snprintf(text, sizeof text, "%sshardrt: %s%s\n", say->erase, who, message);
  if (length >= (int)sizeof text) {
    length = sizeof text - 1;
    text[length - 1] = '\n';
  }
  if (length > 0) print_to_stderr(text, (size_t)length);
}

/* Agrees with the others that fail on who prints: whether it is this process. */
static bool has_the_word(struct notes *n, const char *message, struct quorum *q) {
  uint64_t hash = message_hash(message);
  notes_send(n, &(struct comm_note){.kind = COMM_FAILED, .number = hash});
  listen_to_others(n, hash, q, LISTEN, n->count, true);
  if (q->speaker < 0 && q->lowest < n->index) listen_to_others(n, hash, q, DEFER, n->count, false);
  if (q->speaker >= 0) return false;
  notes_send(n, &(struct comm_note){.kind = COMM_SPEAKING, .number = hash});
  listen_to_others(n, hash, q, SETTLE, n->index, false);
  return q->speaker < 0 || q->speaker > n->index;
}

static void rest_for(double seconds) {
  time_t whole = (time_t)seconds;
  nanosleep(&(struct timespec){.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)}, NULL);
}

void abort_job_say(struct notes *n, const struct last_say *say) {
  fflush(NULL);
  struct quorum q = {.alike = alloc_zeros((size_t)n->count, sizeof *q.alike), .is_unanimous = true};
  const bool speaks = n->count == 1 || q.alike == NULL || has_the_word(n, say->message, &q);
  if (speaks) print_message(n, q.alike, say);
  if (say->before_end != NULL) say->before_end(say->context);
  if (!speaks)
    rest_for(KILLED);
  else if (!q.is_unanimous || (say->before_end != NULL && n->count > 1))
    rest_for(LEAD);
  alloc_free(q.alike);
}
