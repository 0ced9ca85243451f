/* audio.c - decode_audio: the bytes of a sound file become {frames, channels}, by libsndfile:
 * https://libsndfile.github.io/libsndfile/api.html
 *
 * numbers: the dtype, float32 or int16; how many channels a file must have, and its frames in a second; -1: any.
 *
 * What comes out is what libsndfile's own conversions make of it, as in Python's soundfile. Of the frames no more is
 * decoded than those asked for where a format leads to each frame exactly; else those before them, too. */
#include <string.h>

#ifndef SHARDRT_WITHOUT_SNDFILE
#include <sndfile.h>
#endif

#include "base/error.h"
#include "base/libraries.h"
#include "transform/kinds.h"
#include "transform/number.h"

enum { AUDIO_DTYPE, AUDIO_CHANNELS, AUDIO_RATE, AUDIO_NUMBERS };

/* So many elements at most, and frames for each byte of a file: it can ask for any memory. No encoder makes so few
 * bytes of silence. */
#define MOST_ELEMENTS ((int64_t)1 << 30)
enum { MOST_IN_BYTE = 8192 };

static int audio_set(shardrt_transform *self) {
  int code = number_expect(self, AUDIO_NUMBERS);
  if (code == SHARDRT_OK) code = number_dtype(self, AUDIO_DTYPE);
  if (code == SHARDRT_OK) code = number_whole(self, AUDIO_CHANNELS, "the number of channels", -1, INT32_MAX);
  if (code == SHARDRT_OK) code = number_whole(self, AUDIO_RATE, "the rate", -1, INT32_MAX);
  if (code < 0) return code;
  if (self->numbers[AUDIO_CHANNELS] == 0 || self->numbers[AUDIO_RATE] == 0)
    return error_set(SHARDRT_EINVAL, "no sound has 0 channels, or 0 frames in a second");
  if (self->numbers[AUDIO_DTYPE] == SHARDRT_FLOAT32 || self->numbers[AUDIO_DTYPE] == SHARDRT_INT16) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "it makes float32 or int16, not %s; transform.cast behind it makes others",
                   shardrt_dtype_name((int32_t)self->numbers[AUDIO_DTYPE]));
}

static int audio_form(const shardrt_transform *self, const struct form *in, struct form *out) {
  if (in->dtype != SHARDRT_UINT8 || in->ndim != 1)
    return error_set(SHARDRT_EINVAL, "it takes the bytes of a file, uint8 of one dimension, not %s of %d",
                     shardrt_dtype_name(in->dtype), (int)in->ndim);
  *out = (struct form){
      .dtype = (int32_t)self->numbers[AUDIO_DTYPE], .ndim = 2, .shape = {-1, (int64_t)self->numbers[AUDIO_CHANNELS]}};
  return SHARDRT_OK;
}

#ifndef SHARDRT_WITHOUT_SNDFILE

/* A sound file in memory, as libsndfile reads it. */
struct sound {
  const uint8_t *data;
  sf_count_t bytes;
  sf_count_t at;
  const char *name; /* of its format */
  SNDFILE *file;
  SF_INFO info;
};

static sf_count_t sound_length(void *context) {
  return ((struct sound *)context)->bytes;
}

static sf_count_t sound_seek(sf_count_t offset, int whence, void *context) {
  struct sound *self = context;
  sf_count_t at = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? self->at : self->bytes;
  if (__builtin_add_overflow(at, offset, &at) || at < 0) return -1;
  self->at = at;
  return at;
}

static sf_count_t sound_read(void *to, sf_count_t count, void *context) {
  struct sound *self = context;
  const sf_count_t left = self->at < self->bytes ? self->bytes - self->at : 0, some = count < left ? count : left;
  if (some <= 0) return 0;
  memcpy(to, self->data + self->at, (size_t)some);
  self->at += some;
  return some;
}

static sf_count_t sound_write(const void *from, sf_count_t count, void *context) {
  (void)from, (void)count, (void)context;
  return 0;
}

static sf_count_t sound_tell(void *context) {
  return ((struct sound *)context)->at;
}

static SF_VIRTUAL_IO in_memory = {
    .get_filelen = sound_length, .seek = sound_seek, .read = sound_read, .write = sound_write, .tell = sound_tell};

/* What a file is, by its first bytes; NULL: none of these. libsndfile itself would guess at others, too. */
static const char *format_of(const uint8_t *data, size_t bytes) {
  enum { FIRST = 12, MP3 = 0xe0 };
  if (bytes < FIRST) return NULL;
  if ((memcmp(data, "RIFF", 4) == 0 || memcmp(data, "RF64", 4) == 0) && memcmp(data + 8, "WAVE", 4) == 0) return "WAV";
  if (memcmp(data, "fLaC", 4) == 0) return "FLAC";
  if (memcmp(data, "OggS", 4) == 0) return "Ogg";
  return memcmp(data, "ID3", 3) == 0 || (data[0] == 0xff && (data[1] & MP3) == MP3) ? "MP3" : NULL;
}

static uint32_t read_32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* EFORMAT: the samples of a WAV file end before they should, where libsndfile takes those that are there. A program
 * that writes to a pipe knows no length, and says the largest. What else is wrong with its chunks, libsndfile finds.
 * *found becomes whether there are any. */
static int check_riff(const uint8_t *data, size_t bytes, bool *found) {
  enum { RIFF = 12, CHUNK = 8 };
  *found = memcmp(data, "RIFF", 4) != 0;
  for (size_t at = RIFF; !*found && bytes - at >= CHUNK;) {
    const size_t length = read_32(data + at + 4), left = bytes - at - CHUNK;
    const bool samples = memcmp(data + at, "data", 4) == 0, unknown = length >= INT32_MAX;
    if (samples && length > left && !unknown)
      return error_set(SHARDRT_EFORMAT, "a damaged WAV: it is cut off: %zu bytes of samples are missing",
                       length - left);
    *found = samples;
    if (length >= left) return SHARDRT_OK;
    at += CHUNK + length + (length & 1);
  }
  return SHARDRT_OK;
}

/* Opens a sound, and compares what its header says with what is asked for. */
static int open_sound(const shardrt_transform *self, const struct value *in, struct sound *out) {
  const uint8_t *data = in->data;
  const size_t bytes = value_bytes(in);
  *out = (struct sound){.data = data, .bytes = (sf_count_t)bytes, .name = format_of(data, bytes)};
  if (out->name == NULL && bytes < 4) return error_set(SHARDRT_EFORMAT, "%zu bytes, which are no sound", bytes);
  if (out->name == NULL)
    return error_set(SHARDRT_EFORMAT, "no WAV, FLAC, Ogg or MP3: it begins with the bytes %02x %02x %02x %02x", data[0],
                     data[1], data[2], data[3]);
  bool found;
  int code = check_riff(data, bytes, &found);
  if (code < 0) return code;
  out->file = sf_open_virtual(&in_memory, SFM_READ, &out->info, out);
  if (out->file == NULL) /* why is known by a variable that all threads share */
    return error_set(SHARDRT_EFORMAT, "a damaged %s, or one of a kind that %s does not read", out->name,
                     sf_version_string());
  const SF_INFO *info = &out->info;
  const int64_t channels = (int64_t)self->numbers[AUDIO_CHANNELS], rate = (int64_t)self->numbers[AUDIO_RATE];
  if (info->frames == SF_COUNT_MAX)
    code = error_set(SHARDRT_EFORMAT,
                     "a %s that does not say how many frames it has, as one written to a pipe; "
                     "encode it into a file",
                     out->name);
  else if (info->frames == 0 && !found)
    code = error_set(SHARDRT_EFORMAT, "a damaged WAV: it is cut off before its samples");
  else if (info->channels < 1 || info->frames < 0 || info->frames > MOST_ELEMENTS / info->channels)
    code = error_set(SHARDRT_EFORMAT, "a sound of %lld frames, %d channels; at most %lld numbers are decoded",
                     (long long)info->frames, info->channels, (long long)MOST_ELEMENTS);
  else if ((size_t)info->frames / MOST_IN_BYTE > bytes)
    code = error_set(SHARDRT_EFORMAT, "a damaged %s: its header tells of %lld frames, which are not in %zu bytes",
                     out->name, (long long)info->frames, bytes);
  else if (channels >= 0 && info->channels != channels)
    code = error_set(SHARDRT_EFORMAT, "a sound of %d channels, not of %lld", info->channels, (long long)channels);
  else if (rate >= 0 && info->samplerate != rate)
    code = error_set(SHARDRT_EFORMAT, "a sound of %d frames in a second, not of %lld; resample it before",
                     info->samplerate, (long long)rate);
  if (code < 0) sf_close(out->file);
  return code;
}

static int audio_measure(const shardrt_transform *self, struct reader *reader, const struct value *in, int64_t *shape) {
  (void)reader;
  struct sound sound;
  int code = open_sound(self, in, &sound);
  if (code < 0) return code;
  shape[0] = sound.info.frames;
  shape[1] = sound.info.channels;
  sf_close(sound.file);
  return SHARDRT_OK;
}

/* EFORMAT unless all of these frames come. */
static int read_frames(struct sound *sound, int32_t dtype, sf_count_t count, void *to) {
  const sf_count_t got =
      dtype == SHARDRT_INT16 ? sf_readf_short(sound->file, to, count) : sf_readf_float(sound->file, to, count);
  if (sf_error(sound->file) != SF_ERR_NO_ERROR)
    return error_set(SHARDRT_EFORMAT, "a damaged %s: %s", sound->name, sf_strerror(sound->file));
  if (got == count) return SHARDRT_OK;
  return error_set(SHARDRT_EFORMAT, "a damaged %s: it ends before its %lld frames", sound->name,
                   (long long)sound->info.frames);
}

/* Whether a frame can be gone to, and is then what it is in the whole. */
static bool leads_to_frames(const SF_INFO *info) {
  const int kind = info->format & SF_FORMAT_SUBMASK, type = info->format & SF_FORMAT_TYPEMASK;
  if (!info->seekable || type == SF_FORMAT_OGG) return false;
  return kind == SF_FORMAT_PCM_S8 || kind == SF_FORMAT_PCM_U8 || kind == SF_FORMAT_PCM_16 || kind == SF_FORMAT_PCM_24 ||
         kind == SF_FORMAT_PCM_32 || kind == SF_FORMAT_FLOAT || kind == SF_FORMAT_DOUBLE || kind == SF_FORMAT_ULAW ||
         kind == SF_FORMAT_ALAW;
}

/* Decodes the frames and channels that `out` asks for, with room for some frames in between. */
static int decode_sound(struct sound *sound, struct value *out, uint8_t *room, int64_t frames_in_room) {
  const size_t size = shardrt_dtype_size(out->dtype), frame = size * (size_t)out->full[1];
  const size_t wanted = size * (size_t)out->shape[1];
  int64_t skip = out->start[0], left = out->shape[0];
  int code = SHARDRT_OK;
  sf_command(sound->file, SFC_SET_CLIPPING, NULL,
             SF_TRUE); /* numbers beyond int16's ends become these, as in soundfile */
  if (skip > 0 && leads_to_frames(&sound->info)) {
    if (sf_seek(sound->file, skip, SF_SEEK_SET) != skip)
      return error_set(SHARDRT_EFORMAT, "a damaged %s: frame %lld is not found", sound->name, (long long)skip);
    skip = 0;
  }
  for (; skip > 0 && code == SHARDRT_OK; skip -= skip < frames_in_room ? skip : frames_in_room)
    code = read_frames(sound, out->dtype, skip < frames_in_room ? skip : frames_in_room, room);
  if (code == SHARDRT_OK && wanted == frame) return read_frames(sound, out->dtype, left, out->data);
  for (uint8_t *to = out->data; left > 0 && code == SHARDRT_OK;) {
    const int64_t some = left < frames_in_room ? left : frames_in_room;
    const uint8_t *from = room + size * (size_t)out->start[1];
    code = read_frames(sound, out->dtype, some, room);
    for (int64_t i = 0; i < some && code == SHARDRT_OK; i++, from += frame, to += wanted) memcpy(to, from, wanted);
    left -= some;
  }
  return code;
}

static int audio_run(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
                     const struct value *in, struct value *out, int64_t *failed) {
  enum { FRAMES = 1024 };
  (void)draws;
  int code = SHARDRT_OK;
  for (int64_t i = 0; i < n && code == SHARDRT_OK; i++) {
    struct sound sound;
    *failed = i;
    out[i].reduce = 1;
    if (value_bytes(&out[i]) == 0) continue;
    const struct reader_mark mark = reader_mark(reader);
    uint8_t *room = reader_room(reader, FRAMES * shardrt_dtype_size(out[i].dtype) * (size_t)out[i].full[1]);
    if (room == NULL) return SHARDRT_ENOMEM;
    code = open_sound(self, &in[i], &sound);
    if (code == SHARDRT_OK) {
      code = decode_sound(&sound, &out[i], room, FRAMES);
      sf_close(sound.file);
    }
    reader_release(reader, mark);
  }
  return code;
}

#else

static int audio_measure(const shardrt_transform *self, struct reader *reader, const struct value *in, int64_t *shape) {
  (void)self, (void)reader, (void)in, (void)shape;
  return libraries_missing("sound (libsndfile)");
}

static int audio_run(const shardrt_transform *self, struct reader *reader, const struct draw *draws, int64_t n,
                     const struct value *in, struct value *out, int64_t *failed) {
  (void)self, (void)reader, (void)draws, (void)n, (void)in, (void)out, (void)failed;
  return libraries_missing("sound (libsndfile)");
}

#endif

const struct transform_kind decode_audio_kind = {
    .name = "decode_audio",
    .stage = READER_DECODE,
    .pieces = true,
    .set = audio_set,
    .form = audio_form,
    .measure = audio_measure,
    .run = audio_run,
};
