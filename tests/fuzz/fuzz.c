#include "fuzz.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATHS = 8, PATH_ROOM = 512, OPEN_FILES = 8 };

_Noreturn void fuzz_fault(const char *what) {
  fprintf(stderr, "fuzz: %s\n", what);
  abort();
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char folder[64];

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where) {
  (void)status;
  (void)type;
  return where->level > 0 ? remove(path) : 0;
}

void fuzz_clear(void) {
  if (folder[0] != '\0') nftw(folder, remove_one, OPEN_FILES, FTW_DEPTH | FTW_PHYS);
}

static void remove_folder(void) {
  fuzz_clear();
  rmdir(folder);
}

const char *fuzz_folder(void) {
  if (folder[0] != '\0') return folder;
  snprintf(folder, sizeof folder, "%s/shardrt-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (mkdtemp(folder) == NULL) fuzz_fault("no folder can be made");
  atexit(remove_folder);
  return folder;
}

const char *fuzz_write(const char *name, const void *data, size_t size) {
  static char paths[PATHS][PATH_ROOM];
  static int32_t next;
  char *path = paths[next++ % PATHS];
  snprintf(path, PATH_ROOM, "%s/%s", fuzz_folder(), name);
  for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
  }
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) fuzz_fault("a file cannot be written");
  return path;
}

int32_t fuzz_split(const uint8_t *data, size_t size, struct fuzz_part *parts, int32_t most) {
  const size_t between = sizeof FUZZ_BETWEEN - 1;
  int32_t n = 0;
  for (int32_t i = 0; i < most; i++) parts[i] = (struct fuzz_part){.data = data, .size = 0};
  while (n < most) {
    const uint8_t *end = n < most - 1 && size > 0 ? memmem(data, size, FUZZ_BETWEEN, between) : NULL;
    parts[n++] = (struct fuzz_part){.data = data, .size = end != NULL ? (size_t)(end - data) : size};
    if (end == NULL) break;
    size -= (size_t)(end - data) + between;
    data = end + between;
  }
  return n;
}

uint8_t *fuzz_copy(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size + 1);
  if (copy == NULL) fuzz_fault("out of memory");
  if (size > 0) memcpy(copy, data, size);
  copy[size] = 0;
  return copy;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

void fuzz_check(int code) {
  if (code >= 0) return;
  if (strcmp(shardrt_error_name(code), "unknown") == 0) fuzz_fault("a code that is not in the list");
  if (shardrt_error_message()[0] == '\0') fuzz_fault("a failure without a message");
}

void fuzz_opened(int code, shardrt_source *const *source) {
  fuzz_check(code);
  if (code < 0) return;
  fuzz_read(*source);
  shardrt_source_free(*source);
}

/* The cache folder must be this one, too. */
static shardrt_source_options with_cache(const shardrt_source_options *options) {
  shardrt_source_options all = options != NULL ? *options : (shardrt_source_options){0};
  all.cache = fuzz_folder();
  return all;
}

void fuzz_open(const char *format, const char *path, const shardrt_source_options *options) {
  static const char *const name = "x";
  const shardrt_source_options all = with_cache(options);
  shardrt_source *source = NULL;
  fuzz_opened(shardrt_source_open(format, 1, &name, &path, &all, &source), &source);
}

/* What is asked of the fields that a file was found to have: raw bytes, and numbers in one or two dimensions. */
static void ask(const char *format, const char *path, const shardrt_source_options *options,
                const shardrt_source *found) {
  enum { MOST = 8 };
  static const shardrt_field asked[] = {{.dtype = SHARDRT_UINT8, .ndim = 1, .shape = {-1}},
                                        {.dtype = SHARDRT_INT64, .ndim = -1},
                                        {.dtype = SHARDRT_FLOAT32, .ndim = 2, .shape = {2, -1}}};
  const int32_t count = shardrt_source_field_count(found), n = count < MOST ? count : MOST;
  for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
    shardrt_field fields[MOST];
    shardrt_source *source = NULL;
    for (int32_t f = 0; f < n; f++) {
      fields[f] = asked[i];
      fields[f].name = shardrt_source_field(found, f)->name;
    }
    fuzz_opened(shardrt_source_files(format, 1, &path, n, fields, options, &source), &source);
  }
}

static void open_and_ask(const char *format, const char *path, const shardrt_source_options *options) {
  shardrt_source *source = NULL;
  int code = shardrt_source_files(format, 1, &path, 0, NULL, options, &source);
  fuzz_check(code);
  if (code < 0) return;
  fuzz_read(source);
  ask(format, path, options, source);
  shardrt_source_free(source);
}

void fuzz_open_files(const char *format, const char *path, const shardrt_source_options *options) {
  shardrt_source_options all = with_cache(options);
  shardrt_source *source = NULL;
  open_and_ask(format, path, &all);
  all.skips_damage = 1;
  fuzz_opened(shardrt_source_files(format, 1, &path, 0, NULL, &all, &source), &source);
}

void fuzz_open_both(const char *format, const char *path) {
  const shardrt_source_options unverified = {.verify = SHARDRT_VERIFY_NEVER};
  fuzz_open_files(format, path, NULL);
  fuzz_open_files(format, path, &unverified);
}

/* ---- the target -------------------------------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static void (*run)(const uint8_t *, size_t);
  static const struct {
    const char *name;
    void (*run)(const uint8_t *, size_t);
  } targets[] = {
#define FUZZ_TARGET(name) {#name, fuzz_##name},
      FUZZ_TARGETS(FUZZ_TARGET)
#undef FUZZ_TARGET
  };
  const char *wanted = getenv("SHARDRT_FUZZ");
  for (size_t i = 0; run == NULL && wanted != NULL && i < sizeof targets / sizeof *targets; i++)
    if (strcmp(targets[i].name, wanted) == 0) run = targets[i].run;
  if (run == NULL) fuzz_fault("SHARDRT_FUZZ names no target");
  run(data, size);
  fuzz_clear();
  return 0;
}
