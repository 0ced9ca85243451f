/* jpeg.c - what libjpeg-turbo alone gets through: JPEG files decoded whole, one after the other, on some threads.
 *
 *   jpeg THREADS SECONDS FILE...      prints images/s
 *
 * Each thread decodes all files in turn, from memory, into a buffer of its own. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

struct image {
  unsigned char *data;
  size_t bytes;
};

static struct image *images;
static int count;
static double seconds;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void decode(const struct image *image, unsigned char **pixels, size_t *room) {
  struct jpeg_decompress_struct info;
  struct jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, image->data, image->bytes);
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  const size_t row = 3 * (size_t)info.output_width, bytes = row * info.output_height;
  if (bytes > *room) {
    *pixels = realloc(*pixels, bytes);
    *room = bytes;
  }
  while (info.output_scanline < info.output_height) {
    JSAMPROW line = *pixels + row * info.output_scanline;
    jpeg_read_scanlines(&info, &line, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
}

static void *run(void *rate) {
  unsigned char *pixels = NULL;
  size_t room = 0;
  long done = 0;
  const double start = now();
  do {
    decode(&images[done % count], &pixels, &room);
    done++;
  } while (now() - start < seconds);
  *(double *)rate = (double)done / (now() - start);
  free(pixels);
  return NULL;
}

static struct image load(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    exit(1);
  }
  fseek(file, 0, SEEK_END);
  struct image image = {.bytes = (size_t)ftell(file)};
  image.data = malloc(image.bytes);
  rewind(file);
  if (fread(image.data, 1, image.bytes, file) != image.bytes) exit(1);
  fclose(file);
  return image;
}

int main(int argc, char **argv) {
  const int threads = argc > 3 ? atoi(argv[1]) : 0;
  if (threads < 1) return 2;
  seconds = atof(argv[2]);
  count = argc - 3;
  images = calloc((size_t)count, sizeof *images);
  for (int i = 0; i < count; i++) images[i] = load(argv[3 + i]);
  pthread_t *ids = calloc((size_t)threads, sizeof *ids);
  double *rates = calloc((size_t)threads, sizeof *rates), sum = 0;
  for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, run, &rates[i]);
  for (int i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    sum += rates[i];
  }
  printf("%.1f images/s\n", sum);
  return 0;
}
