/* accelerator.h - what a platform offers whose devices have memory of their own (GPUs): memory, streams, transfers, and
 * the computing that is done there.
 *
 * A platform is a few const tables of functions in a plug-in, which is opened when the platform is asked for or found.
 * Host code never looks into a device's memory: it hands over addresses. `device` counts the process's own devices from
 * 0 (a mesh's device of id p * devices_per_process + device); several may be one GPU, each with streams of its own.
 *
 * Each device has three streams. What is put on one runs in the order in which it was put there, and the call returns
 * before it has run. Everything is put on MAIN, unless a call takes a stream: computing, copies between devices, what a
 * recipe asks for. IN is for batches that are uploaded ahead, OUT for what is downloaded while MAIN goes on. Order
 * between streams is made by events, or by `after`.
 *
 * What holds for memory: it is allocated and freed on a stream, in that stream's order. Where there is none left, what
 * nobody needs is given back (accelerator_reclaim), and only then is it an error. Whoever uses it on another one
 * has that stream wait first, and the stream on which it is freed wait afterwards. So what MAIN of one device takes
 * from another device's memory is `after(device, other)`, the work, `after(other, device)`.
 *
 * Waiting for a device has no limit: nobody knows how long what was put on it should take, and what hangs there ends
 * with its process alone. Of a job the other processes, which wait for this one with a limit (comm/wait.h), end
 * it.
 *
 * All functions may be called on any thread, but those that compute on the main one only. Those that return int give 0
 * or a negative code with the message set: ENOMEM says what is held by what; EDEVICE names the call, the device and
 * what was asked for last, as a device may fail long after the call. `what` is the operation, for messages. Needs no
 * more checks: shapes, dtypes and sizes have been checked by the callers. Sizes of 0 are allowed and do nothing. */
#ifndef SHARDRT_PLATFORM_ACCELERATOR_H
#define SHARDRT_PLATFORM_ACCELERATOR_H

#include "shardrt.h"

enum { ACCELERATOR_MAIN, ACCELERATOR_IN, ACCELERATOR_OUT, ACCELERATOR_STREAMS };

/* Who holds memory, for reports. */
enum { ACCELERATOR_ARRAYS, ACCELERATOR_BATCHES, ACCELERATOR_SCRATCH, ACCELERATOR_HOLDERS };

/* Something that a stream has come to. */
struct accelerator_event;
struct order_kind; /* compute/rearrange/order_key.h */

struct accelerator_wanted {
  int32_t devices;    /* how many the process is to have; 0: chosen from the machine; of the host, 1 */
  int32_t process;    /* its index in the job, for the numbers that recipes know devices by */
  int32_t local_rank; /* among the job's processes that may use the same GPUs, */
  int32_t local_size; /* of so many */
};

/* How two devices are linked, the better the larger. */
enum { ACCELERATOR_FAR, ACCELERATOR_HOST_LINK, ACCELERATOR_PEER, ACCELERATOR_NVLINK, ACCELERATOR_SAME };

struct accelerator_info {
  char name[64];    /* "NVIDIA H200" */
  uint8_t uuid[16]; /* of the GPU: devices that share one have the same */
  int32_t gpu;      /* its number in this process */
  int32_t shared;   /* how many of the process's devices it is */
  size_t memory;    /* bytes of the GPU; where processes share it (accelerator_wanted), this one's part */
};

/* A library that the platform's plug-in uses. */
struct accelerator_library {
  const char *name;   /* "NCCL"; static */
  char version[32];   /* "2.28.3"; "": it does not say */
  const void *within; /* an address in it, by which its file is found; NULL: it is not loaded */
};

/* A box of elements whose strides, in elements, may be any: element i (an index in each dimension) goes from
 * from[from_first + sum of i[d] * from_stride[d]] to the same of `to`. ndim 0: one element. */
struct accelerator_place {
  int32_t ndim;
  int64_t extent[SHARDRT_MAX_NDIM];
  int64_t to_first, to_stride[SHARDRT_MAX_NDIM];
  int64_t from_first, from_stride[SHARDRT_MAX_NDIM];
};

/* An operand of an elementwise program: as struct operand of compute/elementwise/operand.h. The element at a row-major
 * position of the result is at the sum of strides[d] * (the position's index in dimension d), in dimensions of `sizes`
 * elements; ndim 0: one element for all. */
struct accelerator_operand {
  const void *data;
  int32_t dtype;
  int32_t ndim;
  int64_t sizes[SHARDRT_MAX_NDIM];
  int64_t strides[SHARDRT_MAX_NDIM];
};

struct accelerator_program {
  const shardrt_step *steps; /* checked, as shardrt_elementwise says */
  int32_t nsteps;
  int32_t nin;
  int32_t dtype; /* in which it computes */
};

/* [outer, n, inner] becomes [outer, inner]. */
struct accelerator_reduction {
  int32_t op;       /* SHARDRT_SUM, … */
  int32_t from, to; /* dtypes */
  int64_t outer, n, inner;
};

/* `batches` products of matrices. All are packed row-major; a transposed operand lies as its transposed. */
struct accelerator_product {
  int32_t dtype;     /* of a and b */
  int32_t out_dtype; /* the same, or float32 of float16 and bfloat16 */
  bool transpose_a, transpose_b;
  bool add;          /* to what is in out */
  int32_t precision; /* SHARDRT_PRECISION_…, of float32 */
  int64_t m, n, k;
  int64_t batches;
  /* As strides over the leading dimensions: nbatch of them, `batch` their sizes, and in each operand how many matrices
   * lie from one to the next (0: broadcast). */
  int32_t nbatch;
  int64_t batch[SHARDRT_MAX_NDIM], a_stride[SHARDRT_MAX_NDIM], b_stride[SHARDRT_MAX_NDIM];
};

/* Elements of x, [outer, size, inner], at `count` indices. */
struct accelerator_taking {
  int32_t dtype;       /* of x and of what is taken */
  int32_t index_dtype; /* SHARDRT_INT32 or SHARDRT_INT64 */
  int64_t outer, size, inner, count;
};

/* What random numbers are made of: compute/random/key_array.c says what the fields mean. */
enum { ACCELERATOR_BITS, ACCELERATOR_UNIFORM, ACCELERATOR_NORMAL, ACCELERATOR_BERNOULLI, ACCELERATOR_RANDINT };
struct accelerator_random {
  int32_t kind;
  int32_t dtype;
  shardrt_key keys[2];
  int32_t width;
  float low, span, probability;
  int32_t least;
  uint32_t count;
  int64_t size;     /* elements of the whole array */
  int64_t elements; /* of the box */
  int64_t origin;   /* place of the box's first element in the whole array */
  int32_t outer;    /* runs of `run` elements, extent[0] * … * extent[outer - 1] of them, `step` elements apart */
  int64_t run;
  int64_t extent[SHARDRT_MAX_NDIM], step[SHARDRT_MAX_NDIM];
};

/* ---- links between processes ---- */

/* A message to or from a device of another process. */
struct accelerator_message {
  int32_t device; /* this process's */
  int32_t rank;   /* of the other one's GPU, among those of the job */
  bool outgoing;
  void *data; /* in the device's memory */
  size_t bytes;
};

enum { ACCELERATOR_LINK_ID = 128 };

/* What a line of GPUs does together: each takes `elements` at `from` and gets what comes at `to`, both in its memory.
 * ALL: the sum of all, the same bits in each. PART: `elements` of the sum, from its place in the line on; `from` has
 * as many for each place. GATHER: what each has, in the order of their places. COPY: what the one at place `root` has.
 */
enum { ACCELERATOR_SUM_ALL, ACCELERATOR_SUM_PART, ACCELERATOR_GATHER, ACCELERATOR_COPY };
struct accelerator_line_work {
  int32_t device; /* this process's */
  int32_t kind;
  int32_t dtype; /* for sums one that accelerator_adds names */
  int32_t root;
  const void *from;
  void *to;
  int64_t elements;
};

enum {
  ACCELERATOR_LINE_SETS = 8, /* ways to divide GPUs into lines that are kept */
  ACCELERATOR_JOB_LINE = -1  /* all GPUs of the job as one line, by their ranks */
};

/* Between the GPUs of a job's processes. A GPU has one rank, however many devices it is; the processes have settled the
 * ranks, and that no two of them share a GPU, before. No call waits for another process: what was started is done when
 * `state` says so. All are called on the main thread. */
struct accelerator_links {
  /* EINVAL: there is no library for it (libnccl), with what would do. */
  int (*open)(void);
  /* Makes the id of a group of GPUs, in one process; the others get it from there. */
  int (*id)(uint8_t id[ACCELERATOR_LINK_ID]);
  /* Starts to join as the ranks of these devices, one for each GPU of this process. Every process does it. */
  int (*join)(const uint8_t id[ACCELERATOR_LINK_ID], int32_t ranks, int32_t own, const int32_t *devices,
              const int32_t *own_ranks);
  /* Puts messages on the way, as one group, after what MAIN of their devices has now; those between the same two GPUs
   * meet in their order, and none are between GPUs of one process. Messages of 0 bytes are left out, by both sides.
   * What is put on MAIN of these devices when `state` has said "done" comes after the messages; nothing may be put
   * there before. */
  int (*exchange)(int64_t count, const struct accelerator_message *messages);
  /* Starts to make lines of GPUs, as that set, in the place of what it was. lines[device] says which line the GPU of
   * this process's device is of; -1: of none; places[device] where it stands there, of all from 0 on. Each device is a
   * GPU of its own. Every process does it, when nothing else is under way; what `state` says ends it. */
  int (*divide)(int32_t set, const int32_t *lines, const int32_t *places);
  /* Puts what lines of that set do on the way, as `exchange` does messages. Every process does it for all of its
   * devices that are in lines, with the same kind, dtype, root and elements along each line. */
  int (*together)(int32_t set, int64_t count, const struct accelerator_line_work *works);
  /* Whether what was started is on its way (that messages have come, events on MAIN tell). EDEVICE, ECOMM: the links
   * failed, with NCCL's words, also after "done"; nothing else can be done with them then but `abort`. */
  int (*state)(bool *done);
  /* Ends what is under way, whatever the other side does. The streams go on; what was being received is undefined. */
  void (*abort)(void);
  void (*close)(void);
};

/* ---- what a platform offers ---- */

/* Memory, 256-byte aligned. */
struct accelerator_memory {
  int (*allocate)(int32_t device, int32_t stream, int32_t holder, size_t bytes, void **out);
  void (*free)(int32_t device, int32_t stream, int32_t holder, void *data, size_t bytes);
  /* Host memory that devices copy from and to by themselves. Nothing may be under way with what is freed. */
  int (*allocate_pinned)(size_t bytes, void **out);
  void (*free_pinned)(void *data, size_t bytes);
};

/* The order of what is put on streams. */
struct accelerator_streams {
  int (*record)(int32_t device, int32_t stream,
                struct accelerator_event **out);                                /* when all that is on it now has run */
  int (*wait)(int32_t device, int32_t stream, struct accelerator_event *event); /* the stream goes on after the event */
  int (*reached)(struct accelerator_event *event, bool *out);
  int (*finish)(struct accelerator_event *event); /* this thread waits for it */
  /* As record, and `elapsed` tells the seconds from one such event to a later one of the device; both were reached. */
  int (*mark)(int32_t device, int32_t stream, struct accelerator_event **out);
  int (*elapsed)(struct accelerator_event *from, struct accelerator_event *to, double *seconds);
  void (*event_free)(struct accelerator_event *event); /* reached or not; NULL: nothing */
  /* MAIN of `device` goes on after all that MAIN of `other` has now. Nothing where they are one. */
  int (*after)(int32_t device, int32_t other);
  /* With a stream of the program that shardrt is in, of the device's GPU: of CUDA a cudaStream_t, where NULL and 1 are
   * the legacy default stream and 2 is the calling thread's. It goes on after all that MAIN has now; */
  int (*lend)(int32_t device, void *stream);
  /* and MAIN goes on after all that it has now. Where it cannot be asked, this thread waits for the GPU. */
  void (*take_back)(int32_t device, void *stream);
};

/* Data on its way. */
struct accelerator_copies {
  /* From pageable memory, `from` may be used again when the call returns; from pinned memory when the stream is there.
   * What is downloaded is there when the stream is. */
  int (*upload)(int32_t device, int32_t stream, void *to, const void *from, size_t bytes);
  bool (*is_pinned)(const void *data); /* of the host's memory, anywhere in a block */
  int (*download)(int32_t device, int32_t stream, void *to, const void *from, size_t bytes);
  /* On MAIN of `device`, from another's memory or its own; the caller makes the order (see above). */
  int (*copy)(int32_t device, void *to, int32_t other, const void *from, size_t bytes);
  /* Whether what runs on `device` reads and writes the memory of `other` by itself. */
  bool (*reaches)(int32_t device, int32_t other);
  /* Strided boxes, all at once: of `element` bytes; `from` in memory that the device reaches. */
  int (*place)(const char *what, int32_t device, size_t element, const struct accelerator_place *place, void *to,
               const void *from);
  int (*zero)(int32_t device, void *to, size_t bytes);
};

/* What is computed where the data lies; checked by the functions of shardrt.h, as which they compute. */
struct accelerator_kernels {
  int (*elementwise)(const char *what, int32_t device, const struct accelerator_program *program,
                     const struct accelerator_operand *operands, int32_t out_dtype, void *out, int64_t elements);
  int (*reduce)(const char *what, int32_t device, const struct accelerator_reduction *reduction, const void *x,
                void *out);
  int (*product)(const char *what, int32_t device, const struct accelerator_product *product, const void *a,
                 const void *b, void *out);
  /* EINVAL, after waiting: an index is outside of the axis; the message names it and the size. */
  int (*check_indices)(const char *what, int32_t device, const struct accelerator_taking *taking, const void *indices);
  int (*take)(const char *what, int32_t device, const struct accelerator_taking *taking, const void *x,
              const void *indices, void *out);
  /* out, [outer, size, inner], becomes zeros plus dy, [outer, count, inner], at the indices, in their order. */
  int (*take_add)(const char *what, int32_t device, const struct accelerator_taking *taking, const void *dy,
                  const void *indices, void *out);
  /* out, [rows, n]: of each row of x the indices that bring it in order (compute/rearrange/order_key.h). */
  int (*argsort)(const char *what, int32_t device, const struct order_kind *kind, int64_t rows, int64_t n,
                 const void *x, int32_t *out);
  /* out, [outer, n, inner]: along n sums of x's elements and those before them, or, backward, behind them. */
  int (*cumsum)(const char *what, int32_t device, int32_t dtype, bool backward, int64_t outer, int64_t n, int64_t inner,
                const void *x, void *out);
  /* out, [outer, n, inner]: start + step * (begin + the index along n), computed in float64. */
  int (*count_along)(const char *what, int32_t device, int32_t dtype, double start, double step, int64_t begin,
                     int64_t outer, int64_t n, int64_t inner, void *out);
  int (*random)(const char *what, int32_t device, const struct accelerator_random *random, void *out);
  /* Of bytes in the device's memory: equal bytes have equal ones, on every device. On that stream; *out is in pinned
   * memory, and there when the stream is. */
  int (*fingerprint)(int32_t device, int32_t stream, const void *data, size_t bytes, uint64_t *out);
};

struct accelerator {
  uint32_t version; /* ACCELERATOR_VERSION */
  const char *name; /* what a recipe sees as device.platform */

  /* How many GPUs this process may use; 0 where there is none, or no driver, and the message says which. *which is the
   * same number in all processes that may use the same ones, and in no others. */
  int32_t (*count)(uint64_t *which);
  /* Opens this process's devices and says how many they are. EINVAL: more are wanted than can be had. */
  int (*open)(const struct accelerator_wanted *wanted, int32_t *devices);
  /* Waits for all that was put on the streams, and gives everything back. */
  void (*close)(void);
  int (*describe)(int32_t device, struct accelerator_info *out);
  int32_t (*link)(int32_t device, int32_t other); /* ACCELERATOR_FAR … ACCELERATOR_SAME */
  /* How GPUs of this host are linked, each with each: links[i * count + k]. They may be other processes'; of those that
   * this one does not see nothing is known: ACCELERATOR_FAR. */
  int (*topology)(int32_t count, const uint8_t (*uuids)[16], int32_t *links);
  /* As shardrt_gpu_get, of a device that is open. */
  int (*examine)(int32_t device, shardrt_gpu *out);
  /* Number `index` of the libraries that it uses, from 0, opened where it was not yet: 1; 0: there are no more. EINVAL:
   * it cannot be used, and the message says what would do; *out has its name. No device need be open. */
  int (*library)(int32_t index, struct accelerator_library *out);

  const struct accelerator_memory *memory;
  const struct accelerator_streams *streams;
  const struct accelerator_copies *copies;
  const struct accelerator_kernels *kernels;
  const struct accelerator_links *links;
};

enum { ACCELERATOR_VERSION = 11 };

/* ---- the one of this process: platform/accelerator.c ---------------------------------------------------------------
 */

/* NULL: the devices are the host's. */
const struct accelerator *accelerator_get(void);
/* How many devices this process has; 0: no job is open. */
int32_t accelerator_devices(void);
/* The plug-in's table, whether or not there is a GPU. EINVAL: there is none, or it cannot be used, with what would
 * do. */
int accelerator_plugin(const struct accelerator **out);
/* What was looked for. */
struct accelerator_finding {
  const struct accelerator *found; /* NULL: the devices are the host's */
  uint64_t which;                  /* tells who shares its GPUs, as `count` does; 0: the host's */
  char notice[1024];               /* for the user: that "auto" found a plug-in which cannot be used; "": nothing */
};
/* Looks for a platform by its name ("host", "cuda"; NULL or "auto": cuda where the plug-in is and finds a GPU, else the
 * host). EINVAL: there is no such platform, it was not built, or there is no GPU, or the plug-in that
 * SHARDRT_CUDA_PLUGIN names is none: the message says what would do. */
int accelerator_find(const char *name, struct accelerator_finding *out);
/* One line for the user: whether the plug-in is there, and finds a GPU. */
void accelerator_text(char *out, size_t bytes);
/* Opens what was found, NULL for the host; *devices becomes how many there are. It is the process's: a job that is
 * opened while another is has the same platform and, where that is not the host, as many devices. EINVAL: it wants
 * others. */
int accelerator_open(const struct accelerator *found, const struct accelerator_wanted *wanted, int32_t *devices);
/* For who has memory of the devices that may outlive every job: as accelerator_open, of what is open. Any thread. */
void accelerator_hold(void);
/* For each accelerator_open and accelerator_hold; with the last one the devices are given back. Any thread. */
void accelerator_close(void);
/* What SHARDRT_LINKS says of data between processes: "off", it goes through the host; "messages", over links, but what
 * lines of GPUs could do together goes in messages; "collectives": that is done together wherever it can be; "on" or
 * nothing: where reshard/exchange/exchange_lines.h says so. EINVAL: it is none of these words. */
enum accelerator_links_wish { LINKS_ON, LINKS_OFF, LINKS_MESSAGES, LINKS_COLLECTIVES };
int accelerator_links_wish(enum accelerator_links_wish *wish);
/* Whether links add up elements of that dtype (ACCELERATOR_SUM_ALL, ACCELERATOR_SUM_PART) as an operation would. */
bool accelerator_adds(int32_t dtype);
/* For who finds no memory: has memory given back that nobody needs, as far as this thread may (shardrt_device_reclaim).
 * False: it may not. What is held must be in order then, and no lock be held that freeing takes; the GPU that calls of
 * this thread go to may be another one afterwards. */
bool accelerator_reclaim(void);
/* "host" or the accelerator's name. */
const char *accelerator_name(void);

#endif
