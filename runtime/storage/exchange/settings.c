#include "storage/exchange/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

enum { LINE = 4096, FILE_BYTES = 1 << 20 };

const char *settings_variable(const char *name) {
  const char *value = getenv(name); /* NOLINT(concurrency-mt-unsafe): nothing sets it */
  return value != NULL && value[0] != '\0' ? value : NULL;
}

char *settings_trimmed(char *text) {
  while (*text == ' ' || *text == '\t') text++;
  size_t n = strlen(text);
  while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL) text[--n] = '\0';
  return text;
}

/* Whether a line is the head of a section. */
static bool is_head(char *line, const char *section, bool *ours) {
  char *end = strchr(line, ']');
  if (line[0] != '[' || end == NULL) return false;
  *end = '\0';
  char *title = settings_trimmed(line + 1);
  if (strncmp(title, "profile ", 8) == 0) title = settings_trimmed(title + 8);
  *ours = strcmp(title, section) == 0;
  return true;
}

char *settings_value(const char *path, const char *section, const char *name, bool *found) {
  FILE *file = path != NULL ? fopen(path, "re") : NULL;
  char line[LINE], *value = NULL;
  bool ours = false;
  while (file != NULL && value == NULL && fgets(line, sizeof line, file) != NULL) {
    char *text = settings_trimmed(line), *equals = strchr(text, '=');
    if (text[0] == '#' || text[0] == ';' || is_head(text, section, &ours)) {
      *found = *found || ours;
      continue;
    }
    if (!ours || equals == NULL) continue;
    *equals = '\0';
    if (strcmp(settings_trimmed(text), name) == 0) value = alloc_text("%s", settings_trimmed(equals + 1));
  }
  if (file != NULL) (void)fclose(file);
  return value;
}

int settings_file(const char *path, const char *what, char **out, size_t *bytes) {
  FILE *file = fopen(path, "re");
  char *text = file != NULL ? alloc_array(FILE_BYTES + 1, 1) : NULL;
  int code = SHARDRT_OK;
  if (file == NULL)
    code = error_set(SHARDRT_EIO, "%s, %s: %s", path, what, strerror(errno));
  else if (text == NULL)
    code = ALLOC_FAILED;
  if (code == SHARDRT_OK) {
    *bytes = fread(text, 1, FILE_BYTES, file);
    text[*bytes] = '\0';
    if (ferror(file) != 0) code = error_set(SHARDRT_EIO, "%s, %s: it cannot be read", path, what);
  }
  if (file != NULL) (void)fclose(file);
  if (code == SHARDRT_OK)
    *out = text;
  else
    alloc_free(text);
  return code;
}

int settings_line(const char *path, const char *what, char **out) {
  char *text = NULL;
  size_t bytes;
  int code = settings_file(path, what, &text, &bytes);
  if (code != SHARDRT_OK) return code;
  text[strcspn(text, "\n")] = '\0';
  const char *line = settings_trimmed(text);
  if (line[0] == '\0')
    code = error_set(SHARDRT_EIO, "%s, %s, is empty", path, what);
  else if ((*out = alloc_text("%s", line)) == NULL)
    code = ALLOC_FAILED;
  alloc_free(text);
  return code;
}
