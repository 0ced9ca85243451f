#include "dataset/arrow/folder.h"

#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/text.h"
#include "codec/json.h"
#include "storage/local/url.h"

enum { NAME_BYTES = 256, LIST_BYTES = 400 };

static int add_path(struct arrow_paths *self, char *path) {
  if (path == NULL) return ALLOC_FAILED;
  char **list = alloc_one_more((void *)self->list, self->count, &self->room, 16, sizeof *list);
  if (list == NULL) {
    alloc_free(path);
    return ALLOC_FAILED;
  }
  self->list = list;
  self->list[self->count++] = path;
  return SHARDRT_OK;
}

void arrow_paths_clear(struct arrow_paths *self) {
  for (int32_t i = 0; i < self->count; i++) alloc_free(self->list[i]);
  alloc_free((void *)self->list);
  *self = (struct arrow_paths){0};
}

/* ---- what the folder's files of JSON say ------------------------------------------------------------------------ */

struct folder_state {
  const char *folder;
  struct arrow_paths *out;
  int32_t files;   /* that it names */
  bool is_indexed; /* rows are those that another table lists */
  struct text splits;
  int32_t nsplits;
};

static int read_file_name(struct json_reader *r, const char *key, void *context) {
  struct folder_state *state = context;
  char name[NAME_BYTES];
  struct json_text text = {.bytes = name, .room = sizeof name};
  if (strcmp(key, "filename") != 0) return json_skip(r);
  int code = json_text_read(r, "a text for \"filename\"", &text);
  if (code != SHARDRT_OK) return code;
  if (text.length >= sizeof name || text.length == 0 || strchr(name, '/') != NULL || strcmp(name, "..") == 0)
    return json_bad(r, "\"filename\" is no name of a file in its folder");
  state->files++;
  return add_path(state->out, alloc_text("%s/%s", state->folder, name));
}

static int read_data_file(struct json_reader *r, int32_t i, void *context) {
  (void)i;
  return json_object_read(r, "an object with a \"filename\"", read_file_name, context);
}

static int note_indices(struct json_reader *r, int32_t i, void *context) {
  struct folder_state *state = context;
  (void)i;
  state->is_indexed = true;
  return json_skip(r);
}

static int read_state_key(struct json_reader *r, const char *key, void *context) {
  if (strcmp(key, "_data_files") == 0) return json_list_read(r, "a list for \"_data_files\"", read_data_file, context);
  if (strncmp(key, "_indices", 8) == 0 && !json_null(r)) /* "_indices_data_files" of datasets 1, and its like */
    return json_list_read(r, "a list of files of indices", note_indices, context);
  return strncmp(key, "_indices", 8) == 0 ? SHARDRT_OK : json_skip(r);
}

static int read_split(struct json_reader *r, int32_t i, void *context) {
  struct folder_state *state = context;
  char name[NAME_BYTES];
  struct json_text text = {.bytes = name, .room = sizeof name};
  int code = json_text_read(r, "a list of texts for \"splits\"", &text);
  if (code != SHARDRT_OK) return code;
  if (text.length < sizeof name) text_add(&state->splits, "%s\"%s\"", i > 0 ? ", " : "", name);
  state->nsplits++;
  return SHARDRT_OK;
}

static int read_dict_key(struct json_reader *r, const char *key, void *context) {
  if (strcmp(key, "splits") != 0) return json_skip(r);
  return json_list_read(r, "a list for \"splits\"", read_split, context);
}

/* Reads a file of JSON in the folder, if it is there. */
static int read_json(const char *name, json_member *take, const shardrt_source_options *options,
                     struct folder_state *state, bool *there) {
  char *path = alloc_text("%s/%s", state->folder, name);
  if (path == NULL) return ALLOC_FAILED;
  struct stored file = {0};
  struct reader arena = {0};
  const uint8_t *text;
  int code = stored_open_if(path, options, NULL, &file, there);
  if (code == SHARDRT_OK && *there) {
    code = stored_get(&file, 0, file.bytes, &arena, &text);
    if (code == SHARDRT_OK) {
      struct json_reader r = {.path = path, .begin = text, .at = text, .end = text + file.bytes};
      code = json_object_read(&r, "an object", take, state);
      if (code == SHARDRT_OK) code = json_end(&r, "the end of the file");
    }
  }
  stored_close(&file);
  reader_clear(&arena);
  alloc_free(path);
  return code;
}

/* ---- folders ---------------------------------------------------------------------------------------------------- */

static bool is_folder(const char *path) {
  struct stat found;
  const size_t length = strlen(path);
  if (url_is(path)) return length > 0 && path[length - 1] == '/';
  return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

static int refuse_folder(const struct folder_state *state, bool is_dict, const char *splits) {
  if (is_dict)
    return error_set(SHARDRT_EINVAL,
                     "the folder %s is a DatasetDict of %d splits, %s; source.arrow(\"%s/train\"), say, "
                     "reads one of them",
                     state->folder, (int)state->nsplits, splits, state->folder);
  return error_set(SHARDRT_EINVAL,
                   "the folder %s has no state.json, which datasets' save_to_disk writes; a pattern "
                   "(\"%s/*.arrow\") or a list of files would do",
                   state->folder, state->folder);
}

static int expand_folder(const char *folder, const shardrt_source_options *options, struct arrow_paths *out) {
  char splits[LIST_BYTES] = "";
  struct folder_state state = {.folder = folder, .out = out, .splits = {.bytes = splits, .capacity = sizeof splits}};
  bool there = false;
  int code = read_json("state.json", read_state_key, options, &state, &there);
  if (code == SHARDRT_OK && !there) {
    code = read_json("dataset_dict.json", read_dict_key, options, &state, &there);
    return code == SHARDRT_OK ? refuse_folder(&state, there, splits) : code;
  }
  if (code == SHARDRT_OK && state.is_indexed)
    return error_set(SHARDRT_EINVAL,
                     "the folder %s keeps the order of its rows in a table of indices; "
                     "load_from_disk, flatten_indices and save_to_disk of datasets write them in that order",
                     folder);
  if (code == SHARDRT_OK && state.files == 0)
    return error_set(SHARDRT_EFORMAT, "%s/state.json names no data files", folder);
  return code;
}

int arrow_folder_expand(int32_t npaths, const char *const *paths, const shardrt_source_options *options,
                        struct arrow_paths *out) {
  int code = SHARDRT_OK;
  *out = (struct arrow_paths){0};
  for (int32_t p = 0; p < npaths && code == SHARDRT_OK; p++) {
    if (!is_folder(paths[p])) {
      code = add_path(out, alloc_text("%s", paths[p]));
      continue;
    }
    char *folder = alloc_text("%s", paths[p]);
    if (folder == NULL) {
      code = ALLOC_FAILED;
      continue;
    }
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--) folder[n - 1] = '\0';
    code = expand_folder(folder, options, out);
    alloc_free(folder);
  }
  if (code != SHARDRT_OK) arrow_paths_clear(out);
  return code;
}
