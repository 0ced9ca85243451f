/* image_folder.c - a folder of classes of images, as torchvision's ImageFolder has them:
 * https://pytorch.org/vision/stable/generated/torchvision.datasets.ImageFolder.html
 *
 * Every folder in it is a class, numbered by the names' bytes; the images in it, and in folders within it, are its
 * samples, in ImageFolder's order: by the folder's path, then by the file's name. A sample is "image", the bytes of a
 * file as uint8 of any length, and "label", the class's number as int64. An image is a file whose name ends in .jpg,
 * .jpeg, .png or .webp, in small or large letters; one of another kind that ImageFolder takes is refused, not left out.
 * Names that begin with a dot, and what is no file, are left alone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "dataset/formats.h"
#include "dataset/source.h"
#include "storage/local/url.h"

enum { IMAGE, LABEL, FIELDS, DEEPEST = 32 };

/* Texts, in the order in which they were added until they are sorted. */
struct names {
  char **texts; /* owned */
  int64_t count, capacity;
};

struct image_folder {
  shardrt_source base;
  char *path;
  char *title;
  struct names classes;
  struct names files; /* with the folder's path before them */
  int32_t *labels;    /* of each file */
};

static void names_clear(struct names *self) {
  for (int64_t i = 0; i < self->count; i++) alloc_free(self->texts[i]);
  alloc_free((void *)self->texts);
  *self = (struct names){0};
}

/* Takes the text, also where it fails. */
static int names_add(struct names *self, char *text) {
  if (text == NULL) return ALLOC_FAILED;
  char **texts = alloc_one_more((void *)self->texts, self->count, &self->capacity, 64, sizeof *texts);
  if (texts == NULL) {
    alloc_free(text);
    return ALLOC_FAILED;
  }
  self->texts = texts;
  self->texts[self->count++] = text;
  return SHARDRT_OK;
}

/* By the folder, then by the name in it. */
static int compare_paths(const void *a, const void *b) {
  const char *x = *(char *const *)a, *y = *(char *const *)b;
  const char *x_end = strrchr(x, '/'), *y_end = strrchr(y, '/');
  if (x_end == NULL || y_end == NULL) return strcmp(x, y);
  const size_t x_length = (size_t)(x_end - x), y_length = (size_t)(y_end - y);
  const int order = memcmp(x, y, x_length < y_length ? x_length : y_length);
  if (order != 0) return order;
  return x_length != y_length ? (x_length > y_length) - (x_length < y_length) : strcmp(x_end, y_end);
}

static void names_sort(struct names *self, int64_t first) {
  qsort((void *)(self->texts + first), (size_t)(self->count - first), sizeof *self->texts, compare_paths);
}

/* ---- what is there ---------------------------------------------------------------------------------------------- */

static const char *const decoded[] = {".jpg", ".jpeg", ".png", ".webp", NULL};
static const char *const others[] = {".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", NULL};

static bool ends_in(const char *name, const char *const *ends) {
  const size_t length = strlen(name);
  for (; *ends != NULL; ends++) {
    const size_t end = strlen(*ends);
    if (length > end && strcasecmp(name + length - end, *ends) == 0) return true;
  }
  return false;
}

static int refuse_folder(const char *path) {
  return error_set(SHARDRT_EIO, "the folder %s: %s", path, strerror(errno));
}

/* DT_DIR, DT_REG or another one, also where the file system does not say so, or it is a link. A link to nothing counts
 * as a file: reading it says so. */
static unsigned char type_of(const char *path, const struct dirent *entry) {
  if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK) return entry->d_type;
  struct stat status;
  return stat(path, &status) == 0 ? IFTODT(status.st_mode) : DT_REG;
}

/* Adds an entry to the folders or images, if it is either. */
static int add_entry(const char *path, const struct dirent *entry, bool full, struct names *folders,
                     struct names *images) {
  char *whole = alloc_text("%s/%s", path, entry->d_name);
  if (whole == NULL) return ALLOC_FAILED;
  const unsigned char type = type_of(whole, entry);
  struct names *to = type == DT_DIR ? folders : NULL;
  int code = SHARDRT_OK;
  if (type == DT_REG && images != NULL && ends_in(entry->d_name, decoded)) to = images;
  if (type == DT_REG && images != NULL && ends_in(entry->d_name, others))
    code = error_set(SHARDRT_EFORMAT, "the file %s: is an image that is not decoded; JPEG, PNG and WebP are", whole);
  if (code == SHARDRT_OK && to != NULL) code = names_add(to, alloc_text("%s", full ? whole : entry->d_name));
  alloc_free(whole);
  return code;
}

/* Adds the names of the folders in `path` to `folders`, and those of the images to `images` (NULL: they are not
 * wanted), with the path before them where `full`. */
static int list_images(const char *path, bool full, struct names *folders, struct names *images) {
  DIR *directory = opendir(path);
  if (directory == NULL) return refuse_folder(path);
  int code = SHARDRT_OK;
  for (const struct dirent *entry; code == SHARDRT_OK && (errno = 0, entry = readdir(directory)) != NULL;) {
    if (entry->d_name[0] != '.') code = add_entry(path, entry, full, folders, images);
  }
  if (code == SHARDRT_OK && errno != 0) code = refuse_folder(path);
  closedir(directory);
  return code;
}

/* Adds all images in a folder and those within it. */
static int collect_images(const char *path, int32_t depth, struct names *images) {
  if (depth == DEEPEST)
    return error_set(SHARDRT_EIO, "the folder %s: folders within folders, more than %d deep: a link to a folder above?",
                     path, DEEPEST);
  struct names folders = {0};
  int code = list_images(path, true, &folders, images);
  for (int64_t i = 0; i < folders.count && code == SHARDRT_OK; i++)
    code = collect_images(folders.texts[i], depth + 1, images);
  names_clear(&folders);
  return code;
}

/* The samples of one class, which are to be the last ones so far. */
static int add_class(struct image_folder *self, int32_t label) {
  char *path = alloc_text("%s/%s", self->path, self->classes.texts[label]);
  if (path == NULL) return ALLOC_FAILED;
  const int64_t first = self->files.count;
  int code = collect_images(path, 0, &self->files);
  if (code == SHARDRT_OK && self->files.count == first)
    code = error_set(SHARDRT_EFORMAT,
                     "the folder %s: holds no image (.jpg, .jpeg, .png, .webp), so this class has no sample", path);
  if (code == SHARDRT_OK) names_sort(&self->files, first);
  alloc_free(path);
  return code;
}

/* The label of every file, given where each class begins. */
static int set_labels(struct image_folder *self, const int64_t *firsts) {
  self->labels = alloc_array((size_t)self->files.count, sizeof *self->labels);
  if (self->labels == NULL) return ALLOC_FAILED;
  for (int32_t c = 0; c < (int32_t)self->classes.count; c++) {
    const int64_t end = c + 1 < self->classes.count ? firsts[c + 1] : self->files.count;
    for (int64_t i = firsts[c]; i < end; i++) self->labels[i] = c;
  }
  return SHARDRT_OK;
}

static int find_samples(struct image_folder *self) {
  int code = list_images(self->path, false, &self->classes, NULL);
  if (code != SHARDRT_OK) return code;
  if (self->classes.count == 0 || self->classes.count > INT32_MAX)
    return error_set(SHARDRT_EFORMAT, "%s: holds no folders; each class of images has one", self->title);
  names_sort(&self->classes, 0);
  int64_t *firsts = alloc_array((size_t)self->classes.count, sizeof *firsts);
  if (firsts == NULL) return ALLOC_FAILED;
  for (int32_t c = 0; c < (int32_t)self->classes.count && code == SHARDRT_OK; c++) {
    firsts[c] = self->files.count;
    code = add_class(self, c);
  }
  if (code == SHARDRT_OK) code = set_labels(self, firsts);
  alloc_free(firsts);
  self->base.count = self->files.count;
  return code;
}

/* ---- the source ------------------------------------------------------------------------------------------------- */

static int set_folder_fields(struct image_folder *self, int32_t nfields, const shardrt_field *asked) {
  static const shardrt_field fields[FIELDS] = {
      [IMAGE] = {.name = "image", .dtype = SHARDRT_UINT8, .ndim = 1, .shape = {-1}},
      [LABEL] = {.name = "label", .dtype = SHARDRT_INT64},
  };
  if (nfields > 0)
    return error_set(SHARDRT_EINVAL, "%s: its fields are image and label (not \"%s\"); map chooses among them",
                     self->title, asked[0].name);
  self->base.fields = alloc_array(FIELDS, sizeof *fields);
  if (self->base.fields == NULL) return ALLOC_FAILED;
  memcpy(self->base.fields, fields, sizeof fields);
  self->base.nfields = FIELDS;
  return SHARDRT_OK;
}

/* Of the names of all files. */
static uint64_t hash_files(const struct image_folder *self) {
  const size_t above = strlen(self->path);
  uint64_t hash = hash_text(0, "shardrt folder");
  for (int64_t i = 0; i < self->files.count; i++) hash = hash_text(hash, self->files.texts[i] + above);
  return hash;
}

static int open_image_folder(int32_t npaths, const char *const *paths, int32_t nfields, const shardrt_field *fields,
                             const shardrt_source_options *options, shardrt_source **out) {
  (void)options;
  if (npaths != 1) return error_set(SHARDRT_EINVAL, "source.folder: %d folders; it takes one", (int)npaths);
  if (url_is(paths[0]))
    return error_set(SHARDRT_EINVAL,
                     "%s: what files a server has cannot be asked of it; the images as tar archives (source.tar) would "
                     "do, or downloading them",
                     paths[0]);
  struct image_folder *made = source_new(&image_folder_format, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->path = alloc_text("%s", paths[0]);
  made->title = alloc_text("the folder %s", paths[0]);
  int code = made->path != NULL && made->title != NULL ? set_folder_fields(made, nfields, fields) : ALLOC_FAILED;
  if (code == SHARDRT_OK) code = find_samples(made);
  if (code == SHARDRT_OK) code = source_add_file(&made->base, made->title, NULL, hash_files(made));
  if (code != SHARDRT_OK) {
    shardrt_source_free(&made->base);
    return code;
  }
  *out = &made->base;
  return SHARDRT_OK;
}

/* A whole file, in the arena. */
static int read_image_file(const char *path, struct reader *reader, uint8_t **out, int64_t *bytes) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status = {0};
  if (file < 0 || fstat(file, &status) != 0) {
    const int why = errno;
    if (file >= 0) close(file);
    return error_set(SHARDRT_EIO, "the file %s: %s", path, strerror(why));
  }
  *out = reader_room(reader, (size_t)status.st_size);
  int64_t got = 0;
  while (*out != NULL && got < status.st_size) {
    const ssize_t more = read(file, *out + got, (size_t)(status.st_size - got));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    got += more;
  }
  const int why = errno;
  close(file);
  if (*out == NULL) return SHARDRT_ENOMEM;
  if (got < status.st_size)
    return error_set(SHARDRT_EIO, "the file %s: %lld of its %lld bytes could be read: %s", path, (long long)got,
                     (long long)status.st_size, why != 0 ? strerror(why) : "it became shorter");
  *bytes = got;
  reader->bytes_read += got;
  return SHARDRT_OK;
}

static int image_folder_value(const shardrt_source *source, int32_t field, int64_t sample, struct reader *reader,
                              struct value *out, bool *handled) {
  const struct image_folder *self = (const struct image_folder *)source;
  *handled = field == IMAGE;
  if (field != IMAGE) return SHARDRT_OK;
  uint8_t *data = NULL;
  int64_t bytes = 0;
  int code = read_image_file(self->files.texts[sample], reader, &data, &bytes);
  if (code != SHARDRT_OK) return code;
  *out = value_whole(SHARDRT_UINT8, 1, &bytes);
  out->data = data;
  return SHARDRT_OK;
}

static int image_folder_error_context(const shardrt_source *source, int32_t field, int64_t sample, int code) {
  const struct image_folder *self = (const struct image_folder *)source;
  return field == IMAGE ? error_prefix(code, "the file %s", self->files.texts[sample]) : code;
}

/* Of labels: images are ragged. */
static int image_folder_gather(const shardrt_source *source, int32_t field, const int64_t *samples, int64_t n,
                               const shardrt_box *inner, struct reader *reader, void *dst) {
  (void)field;
  (void)inner;
  (void)reader;
  const struct image_folder *self = (const struct image_folder *)source;
  for (int64_t i = 0; i < n; i++) {
    const int64_t label = self->labels[samples[i]];
    memcpy((char *)dst + (size_t)i * sizeof label, &label, sizeof label);
  }
  return SHARDRT_OK;
}

static size_t image_folder_bytes(const shardrt_source *source, int32_t field, const shardrt_box *inner) {
  (void)source;
  (void)field;
  (void)inner;
  return 0; /* of images it is not known before they are read */
}

static void image_folder_close(shardrt_source *source) {
  struct image_folder *self = (struct image_folder *)source;
  alloc_free(self->labels);
  names_clear(&self->files);
  names_clear(&self->classes);
  alloc_free(self->title);
  alloc_free(self->path);
  alloc_free(source->fields);
}

const char *shardrt_source_class(const shardrt_source *source, int64_t i) {
  if (source->format != &image_folder_format) return NULL;
  const struct names *classes = &((const struct image_folder *)source)->classes;
  return i >= 0 && i < classes->count ? classes->texts[i] : NULL;
}

const struct source_format image_folder_format = {
    .name = "folder",
    .open_files = open_image_folder,
    .gather = image_folder_gather,
    .value = image_folder_value,
    .error_context = image_folder_error_context,
    .bytes = image_folder_bytes,
    .close = image_folder_close,
};
