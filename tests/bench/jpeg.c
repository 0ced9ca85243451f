/* jpeg.c - what libjpeg-turbo alone gets through: JPEG files decoded whole, one after the other, on some threads.
 *
 *   jpeg make FOLDER COUNT            writes so many images of 500 x 375, of quality 90: FOLDER/0.jpg, …
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

/* ---- images ----------------------------------------------------------------------------------------------------- */

enum { HEIGHT = 375, WIDTH = 500 };

/* A number of 0 … 1 for a point of a lattice. */
static double lattice(unsigned x, unsigned y, unsigned salt) {
  unsigned h = x * 374761393u + y * 668265263u + salt * 2246822519u;
  h = (h ^ h >> 13) * 1274126177u;
  return (double)(h ^ h >> 16) / 4294967296.0;
}

/* Smooth between lattice points that are `size` pixels apart. */
static double noise(double x, double y, double size, unsigned salt) {
  const double u = x / size, v = y / size;
  const unsigned i = (unsigned)u, k = (unsigned)v;
  const double a = u - i, b = v - k;
  return (lattice(i, k, salt) * (1 - a) + lattice(i + 1, k, salt) * a) * (1 - b) +
         (lattice(i, k + 1, salt) * (1 - a) + lattice(i + 1, k + 1, salt) * a) * b;
}

/* Large shapes, and less of what is smaller, as photographs have: about 1 bit for each pixel and channel. */
static unsigned char pixel(int x, int y, unsigned salt, int channel) {
  double sum = 0;
  double size = 128, part = 150;
  for (unsigned octave = 0; octave < 7; octave++, size /= 2, part *= 0.74)
    sum += part * (noise(x, y, size, salt * 16 + octave) * 0.8 +
                   noise(x, y, size, salt * 16 + octave + 7u * (unsigned)(channel + 1)) * 0.2 - 0.5);
  const double value = 128 + sum;
  return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void make(const char *path, unsigned salt) {
  static unsigned char row[WIDTH * 3];
  struct jpeg_compress_struct info;
  struct jpeg_error_mgr errors;
  FILE *file = fopen(path, "wb");
  if (file == NULL) {
    perror(path);
    exit(1);
  }
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  jpeg_stdio_dest(&info, file);
  info.image_width = WIDTH;
  info.image_height = HEIGHT;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < HEIGHT; y++) {
    for (int i = 0; i < WIDTH * 3; i++) row[i] = pixel(i / 3, y, salt, i % 3);
    JSAMPROW line = row;
    jpeg_write_scanlines(&info, &line, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  fclose(file);
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "make") == 0) {
    for (int i = 0; i < atoi(argv[3]); i++) {
      char path[4096];
      snprintf(path, sizeof path, "%s/%d.jpg", argv[2], i);
      make(path, (unsigned)i);
    }
    return 0;
  }
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
