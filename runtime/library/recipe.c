/* recipe.c - a recipe that returned loaders, and their batches.
 *
 * Lua makes the loaders, and is asked for all but batches: where they stand, what they did. A batch comes from the
 * loader in C, unless Lua has a part in each (lua/shardrt/program/library.lua, whose loaders count from 1). */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"
#include "library/batch.h"
#include "library/job_watch.h"
#include "library/library_call.h"
#include "library/membership.h"
#include "library/orderly_end.h"
#include "memory/array.h"
#include "reshard/allreduce.h"
#include "system/numeric_state.h"
#include "system/time_slice.h"

enum { WHERE = 80, SHOWN = 40 }; /* bytes of a place, as a report can show, and of a recipe's path in it, its end */

/* Where a loader stands: its next batch begins at a row of an epoch. The first member, for Lua, says which loader; they
 * count from 1. */
struct standing {
  int64_t loader, epoch, row;
};

/* A loader that a recipe returned. */
struct recipe_loader {
  char *name;              /* "" where it is alone */
  shardrt_loader *loader;  /* C's; until it is settled, the one that the last look found */
  bool is_direct;          /* it gives the batches by itself; else Lua does */
  bool is_settled;         /* and who gives them does not change any more */
  int fields;              /* of the direct one's batches, */
  char **names;            /* and what they are called */
  int64_t steps;           /* of an epoch */
  struct held_bytes *held; /* what the program holds of the batches that Lua gave */
  struct standing before;  /* its last batch; its loader is 0 where it had none since it was opened or restored */
  char where[WHERE];       /* for reports about processes that wait for each other */
};

/* A recipe that was run. Its handles own it together, and the job does until it is left: so only the thread that joined
 * ends it, and whoever is the last gives back its memory. */
struct open_recipe {
  struct membership_guest guest; /* of the job; the first member */
  atomic_int owners;
  struct library library; /* has no state where the job was left */
  int watched;            /* its number there (library/job_watch.h); 0: it is not watched */
  int count;
  struct recipe_loader *loaders;
  struct time_slice *slice; /* in which calls of shardrt_next are made that may rest; NULL: there was none */
  int next_loader;          /* of the call that is made there, */
  int next_code;            /* and what came of it */
  shardrt_batch *batch;     /* NULL: none */
  bool is_kept;             /* it has come to its end, and waits for the next shardrt_next */
  char *message;            /* with which it failed then; NULL: none */
};

/* Whose call of shardrt_next rests. The processes' calls have one order, so nothing else is called meanwhile. */
static struct open_recipe *resting;

struct shardrt_recipe {
  struct open_recipe *opened;
  int number; /* of the loader, from 0; -1: all of them */
};

/* ---- a recipe that is run --------------------------------------------------------------------------------------- */

static int call_of(const struct open_recipe *self, const char *function, int number, void *pointer,
                   struct library_answer *out) {
  const struct library_arguments given = {.number = number, .has_number = true, .pointer = pointer};
  return library_call(&self->library, function, &given, out);
}

/* Looks whether C's loader gives the batches by itself, until that is settled. */
static int find_direct(struct open_recipe *self, int p) {
  struct recipe_loader *entry = &self->loaders[p];
  if (entry->is_settled) return SHARDRT_OK;
  shardrt_loader *loader = NULL;
  struct library_answer answer;
  const int code = call_of(self, "direct", p + 1, &loader, &answer);
  if (code < 0) return code;
  entry->loader = loader;
  entry->is_direct = answer.texts != NULL;
  entry->is_settled = entry->is_direct || answer.is_false;
  entry->names = answer.texts;
  entry->fields = answer.count;
  return SHARDRT_OK;
}

/* "shardrt_next of recipe.lua, train". */
static void describe(char where[WHERE], const char *call, const char *recipe, const char *loader) {
  const size_t length = strlen(recipe);
  snprintf(where, WHERE, "%s of %s%s%s", call, length > SHOWN ? recipe + length - SHOWN : recipe,
           loader[0] != '\0' ? ", " : "", loader);
}

static int fill_loader(struct open_recipe *self, int p, const char *recipe) {
  struct recipe_loader *entry = &self->loaders[p];
  struct library_answer answer;
  const int code = call_of(self, "steps_per_epoch", p + 1, NULL, &answer);
  if (code < 0) return code;
  entry->steps = (int64_t)answer.number;
  describe(entry->where, "shardrt_next", recipe, entry->name);
  return held_bytes_new(&entry->held);
}

/* The loaders, from the list of names that opening returned, which they take. */
static int make_loaders(struct open_recipe *self, const char *recipe, const struct library_answer *names) {
  self->loaders = alloc_zeros((size_t)names->count, sizeof *self->loaders);
  if (self->loaders == NULL) {
    library_texts_free(names->texts, names->count);
    return ALLOC_FAILED;
  }
  self->count = names->count;
  for (int p = 0; p < self->count; p++) self->loaders[p].name = names->texts[p];
  alloc_free(names->texts);
  int code = SHARDRT_OK;
  for (int p = 0; p < self->count && code == SHARDRT_OK; p++) code = fill_loader(self, p, recipe);
  return code;
}

static int run_recipe(struct open_recipe *self, const char *recipe, int argc, const char *const *argv) {
  int code = library_new("shardrt.program.library", recipe, argc, argv, &self->library);
  if (code < 0) return code;
  self->watched = job_watch_open(recipe);
  if (time_slice_deadline() != NULL) library_watch(&self->library, true);
  const struct library_arguments given = {
      .number = self->watched > 0, .has_number = true, .pointer = shardrt_joined(), .text = recipe};
  struct library_answer names;
  code = library_call(&self->library, "open", &given, &names);
  return code < 0 ? code : make_loaders(self, recipe, &names);
}

/* The folder that it made for the job goes when all processes have left: others may be reading there. */
static void end_library(struct open_recipe *self) {
  struct library_answer folder = {0};
  if (self->library.functions != 0 && library_call(&self->library, "close", NULL, &folder) == SHARDRT_OK)
    membership_remove_later(folder.text);
  library_free(&self->library);
}

/* The end of its loaders. A call that rests is gone on with: where the job is abandoned, it fails at once. */
static void end_recipe(struct open_recipe *self, bool is_abandoned) {
  if (resting == self) {
    if (is_abandoned && !self->is_kept) time_slice_cancel(self->slice);
    if (!self->is_kept) time_slice_go(self->slice, INFINITY);
    shardrt_batch_free(self->batch);
    resting = NULL;
  }
  time_slice_free(self->slice);
  self->slice = NULL;
  job_watch_close(self->watched, &self->library);
  end_library(self);
}

/* Of one that has ended. */
static void open_recipe_free(struct open_recipe *self) {
  for (int p = 0; p < self->count; p++) {
    library_texts_free(self->loaders[p].names, self->loaders[p].fields);
    held_bytes_free(self->loaders[p].held);
    alloc_free(self->loaders[p].name);
  }
  alloc_free(self->loaders);
  alloc_free(self->message);
  alloc_free(self);
}

static void leave_job(struct membership_guest *guest, bool is_abandoned) {
  struct open_recipe *self = (struct open_recipe *)guest;
  end_recipe(self, is_abandoned);
  if (atomic_fetch_sub(&self->owners, 1) == 1) open_recipe_free(self); /* its handles were closed on another thread */
}

static int new_handle(struct open_recipe *opened, int number, shardrt_recipe **out) {
  shardrt_recipe *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  *made = (shardrt_recipe){.opened = opened, .number = number};
  atomic_fetch_add(&opened->owners, 1);
  *out = made;
  return SHARDRT_OK;
}

/* Where a call rests that it is not. */
static int check_resting(const char *caller, const struct open_recipe *self, int number) {
  const char *other = membership_resting();
  if (other != NULL && strcmp(other, caller) == 0) return SHARDRT_OK;
  if (other == NULL && resting != NULL && (resting != self || self->next_loader != number)) other = "shardrt_next";
  if (other == NULL) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s: a call of %s has returned SHARDRT_EAGAIN; it is called again first", caller,
                   other);
}

/* Brings a call that rests in this recipe's Lua to its end, so that Lua can be asked; what came of it is kept. */
static void free_lua(struct open_recipe *self) {
  if (resting != self || self->is_kept || self->loaders[self->next_loader].is_direct) return;
  time_slice_go(self->slice, INFINITY);
  self->is_kept = true;
  if (self->next_code < 0) self->message = alloc_text("%s", shardrt_error_message());
}

/* The call of shardrt_open that is made; it may rest. */
static struct opening {
  const char *recipe;
  int argc;
  const char *const *argv;
  shardrt_recipe **out;
} opening;

static int call_open(void *context) {
  const struct opening *given = context;
  struct open_recipe *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->guest.leave = leave_job;
  atomic_init(&made->owners, 1); /* the job */
  char call[WHERE];
  describe(call, "shardrt_open", given->recipe, "");
  shardrt_job_at(shardrt_joined(), call);
  int code = run_recipe(made, given->recipe, given->argc, given->argv);
  if (code == SHARDRT_OK) code = new_handle(made, -1, given->out);
  job_after(shardrt_joined(), call, code);
  library_watch(&made->library, false);
  if (code == SHARDRT_OK) {
    membership_add(&made->guest);
    return code;
  }
  char *message = alloc_text("%s", shardrt_error_message()); /* what ends may set another */
  end_recipe(made, false);
  open_recipe_free(made);
  if (message != NULL) error_set(code, "%s", message);
  alloc_free(message);
  return code;
}

int shardrt_open(const char *recipe, int argc, const char *const *argv, shardrt_recipe **out) {
  NUMERIC_STATE_OF_C;
  int code = membership_check("shardrt_open");
  if (code == SHARDRT_OK) code = check_resting("shardrt_open", NULL, -1);
  if (code < 0) return code;
  if (membership_resting() == NULL) opening = (struct opening){recipe, argc, argv, out};
  return membership_call("shardrt_open", call_open, &opening);
}

void shardrt_close(shardrt_recipe *recipe) {
  NUMERIC_STATE_OF_C;
  if (recipe == NULL) return;
  struct open_recipe *self = recipe->opened;
  alloc_free(recipe);
  const int left = atomic_fetch_sub(&self->owners, 1) - 1;
  /* The last handle: only the job has it now, and on another thread than the one that joined it does until it is left.
   */
  if (left == 1 && membership_is_here() && membership_remove(&self->guest)) {
    leave_job(&self->guest, false);
    return;
  }
  if (left == 0) open_recipe_free(self); /* the job was left */
}

/* ---- its loaders ------------------------------------------------------------------------------------------------ */

static bool is_alone(const struct open_recipe *self) {
  return self->count == 1 && self->loaders[0].name[0] == '\0';
}

int shardrt_recipe_count(const shardrt_recipe *recipe) {
  return is_alone(recipe->opened) || recipe->number >= 0 ? 0 : recipe->opened->count;
}

const char *shardrt_recipe_name(const shardrt_recipe *recipe, int i) {
  return i >= 0 && i < shardrt_recipe_count(recipe) ? recipe->opened->loaders[i].name : NULL;
}

/* "test", "train". */
static void list_names(const struct open_recipe *self, char *text, size_t room) {
  size_t used = 0;
  text[0] = '\0';
  for (int p = 0; p < self->count && used < room; p++)
    used += (size_t)snprintf(text + used, room - used, "%s\"%s\"", p > 0 ? ", " : "", self->loaders[p].name);
}

int shardrt_recipe_loader(shardrt_recipe *recipe, const char *name, shardrt_recipe **out) {
  const struct open_recipe *self = recipe->opened;
  for (int p = 0; p < self->count; p++)
    if (strcmp(self->loaders[p].name, name) == 0) return new_handle(recipe->opened, p, out);
  char names[512];
  list_names(self, names, sizeof names);
  if (is_alone(self))
    return error_set(SHARDRT_EINVAL, "there is no loader \"%s\": the recipe returned one alone, without a name", name);
  return error_set(SHARDRT_EINVAL, "there is no loader \"%s\"; the recipe returned %s", name, names);
}

/* Whether `caller` may go on; *number becomes the one that is meant, -1 where that may be all of them. */
static int check_call(const shardrt_recipe *recipe, const char *caller, bool takes_all, int *number) {
  if (recipe == NULL) return error_set(SHARDRT_EINVAL, "%s: the recipe is NULL", caller);
  const struct open_recipe *self = recipe->opened;
  int code = membership_check(caller);
  if (code < 0) return code;
  if (self->library.L == NULL)
    return error_set(SHARDRT_EINVAL, "%s: the job that the recipe was opened in was left", caller);
  *number = is_alone(self) ? 0 : recipe->number;
  if (*number >= 0 || takes_all) return SHARDRT_OK;
  char names[512];
  list_names(self, names, sizeof names);
  return error_set(SHARDRT_EINVAL, "%s: the recipe returned loaders %s; shardrt_recipe_loader picks one", caller,
                   names);
}

int64_t shardrt_steps(const shardrt_recipe *recipe) {
  const int number = is_alone(recipe->opened) ? 0 : recipe->number;
  return number < 0 ? -1 : recipe->opened->loaders[number].steps;
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

static int next_direct(const struct recipe_loader *entry, shardrt_batch **out) {
  shardrt_batch *made;
  int code = recipe_batch_new(entry->fields, (const char *const *)entry->names, &made);
  if (code < 0) return code;
  code = shardrt_loader_next(entry->loader, recipe_batch_arrays(made));
  if (code == 1)
    *out = made;
  else
    shardrt_batch_free(made);
  return code;
}

/* Arrays of their own, over the same buffers, of the batch that Lua holds. */
static int share_arrays(const struct open_recipe *self, shardrt_batch *batch) {
  shardrt_array **arrays = recipe_batch_arrays(batch);
  const struct library_arguments given = {.pointer = arrays};
  const int count = shardrt_batch_fields(batch);
  int code = library_call(&self->library, "arrays", &given, NULL), shared = 0;
  while (code == SHARDRT_OK && shared < count) {
    code = shardrt_array_like(arrays[shared], &arrays[shared]);
    if (code == SHARDRT_OK) shared++;
  }
  for (int i = shared; i < count; i++) arrays[i] = NULL; /* Lua's */
  return code;
}

static int next_in_lua(const struct open_recipe *self, int p, shardrt_batch **out) {
  struct library_answer names;
  int code = call_of(self, "next", p + 1, NULL, &names);
  if (code != 1) return code;
  shardrt_batch *made;
  code = recipe_batch_new(names.count, (const char *const *)names.texts, &made);
  library_texts_free(names.texts, names.count);
  if (code < 0) return code;
  code = share_arrays(self, made);
  if (code < 0) {
    shardrt_batch_free(made);
    return code;
  }
  recipe_batch_hold(made, self->loaders[p].held);
  *out = made;
  return 1;
}

static int next_batch(const struct open_recipe *self, int p, shardrt_batch **out) {
  const struct recipe_loader *entry = &self->loaders[p];
  shardrt_job_at(shardrt_joined(), entry->where);
  const int code = orderly_end_check(shardrt_joined());
  if (code < 0) return code;
  return entry->is_direct ? next_direct(entry, out) : next_in_lua(self, p, out);
}

/* What runs in the slice. */
static void next_in_slice(void *context) {
  struct open_recipe *self = context;
  self->next_code = next_batch(self, self->next_loader, &self->batch);
}

/* Before a call that begins: who gives its batch, and where the loader stands. */
static int begin_next(struct open_recipe *self, int p) {
  const int code = find_direct(self, p);
  if (code < 0) return code;
  struct standing *before = &self->loaders[p].before;
  before->loader = p + 1;
  shardrt_loader_tell(self->loaders[p].loader, &before->epoch, &before->row);
  return SHARDRT_OK;
}

/* What came of a call that has ended. */
static int end_next(struct open_recipe *self, shardrt_batch **out) {
  int code = self->next_code;
  if (code == 1) *out = self->batch;
  if (code < 0 && self->message != NULL) code = error_set(code, "%s", self->message);
  alloc_free(self->message);
  self->message = NULL;
  self->batch = NULL;
  self->is_kept = false;
  resting = NULL;
  return code;
}

static int take_next(struct open_recipe *self, int p, double seconds, shardrt_batch **out) {
  int code = resting == NULL ? begin_next(self, p) : SHARDRT_OK;
  if (code < 0) return code;
  const bool is_endless = seconds < 0 || isinf(seconds);
  if (is_endless && resting == NULL) return next_batch(self, p, out);
  if (self->slice == NULL) code = time_slice_new(next_in_slice, self, &self->slice);
  if (code < 0) return code;
  self->next_loader = p;
  if (!self->is_kept && !time_slice_go(self->slice, is_endless ? INFINITY : seconds)) {
    resting = self;
    return error_set(SHARDRT_EAGAIN, "the next batch is not there yet");
  }
  return end_next(self, out);
}

int shardrt_next(shardrt_recipe *recipe, double seconds, shardrt_batch **out) {
  NUMERIC_STATE_OF_C;
  int p = 0, code = check_call(recipe, "shardrt_next", false, &p);
  if (code == SHARDRT_OK && isnan(seconds)) code = error_set(SHARDRT_EINVAL, "shardrt_next: seconds is not a number");
  if (code == SHARDRT_OK) code = check_resting("shardrt_next", recipe->opened, p);
  if (code < 0) return code;
  struct open_recipe *self = recipe->opened;
  code = take_next(self, p, seconds, out);
  if (code != SHARDRT_EAGAIN) job_after(shardrt_joined(), self->loaders[p].where, code);
  if (code >= 0 && self->watched > 0) job_watch_step(self->watched, &self->library, p + 1, self->loaders[p].is_direct);
  return code;
}

/* ---- what Lua is asked for -------------------------------------------------------------------------------------- */

/* A text that a function of the library returns for a loader, or, by 0, for all. Also while a call rests. */
static int ask(struct open_recipe *self, int p, const char *function, void *given, char **out) {
  free_lua(self);
  struct library_answer answer;
  const int code = call_of(self, function, p + 1, given, &answer);
  if (code < 0) return code;
  assert(answer.text != NULL);
  *out = answer.text;
  return SHARDRT_OK;
}

/* Of a call that rests, nothing has been handed out. */
int shardrt_state(shardrt_recipe *recipe, char **json) {
  NUMERIC_STATE_OF_C;
  int p = 0, code = check_call(recipe, "shardrt_state", true, &p);
  if (code < 0) return code;
  struct open_recipe *self = recipe->opened;
  return ask(self, p, "state", resting == self ? &self->loaders[self->next_loader].before : NULL, json);
}

int shardrt_tell(shardrt_recipe *recipe, int64_t *epoch, int64_t *row) {
  int p = 0, code = check_call(recipe, "shardrt_tell", false, &p);
  if (code < 0) return code;
  const struct open_recipe *self = recipe->opened;
  const struct standing *before = &self->loaders[p].before;
  const bool rests = resting == self && self->next_loader == p;
  if (!rests) shardrt_loader_tell(self->loaders[p].loader, epoch, row);
  if (rests) *epoch = before->epoch, *row = before->row;
  return SHARDRT_OK;
}

int shardrt_state_before(shardrt_recipe *recipe, char **json) {
  NUMERIC_STATE_OF_C;
  int p = 0, code = check_call(recipe, "shardrt_state_before", false, &p);
  if (code < 0) return code;
  struct standing *before = &recipe->opened->loaders[p].before;
  return ask(recipe->opened, p, "state", before->loader != 0 ? before : NULL, json);
}

int shardrt_stats(shardrt_recipe *recipe, char **json) {
  NUMERIC_STATE_OF_C;
  int p = 0, code = check_call(recipe, "shardrt_stats", true, &p);
  if (code < 0) return code;
  struct open_recipe *self = recipe->opened;
  int64_t *held = alloc_array((size_t)self->count, sizeof *held);
  if (held == NULL) return ALLOC_FAILED;
  for (int i = 0; i < self->count; i++) held[i] = held_bytes_get(self->loaders[i].held);
  code = ask(self, p, "stats", held, json);
  alloc_free(held);
  return code;
}

int shardrt_restore(shardrt_recipe *recipe, const char *json) {
  NUMERIC_STATE_OF_C;
  int p = 0, code = check_call(recipe, "shardrt_restore", true, &p);
  if (code == SHARDRT_OK) code = check_resting("shardrt_restore", NULL, -1);
  if (code < 0) return code;
  struct open_recipe *self = recipe->opened;
  const struct library_arguments given = {.number = p + 1, .has_number = true, .text = json};
  shardrt_job_at(shardrt_joined(), "shardrt_restore");
  code = library_call(&self->library, "restore", &given, NULL);
  job_after(shardrt_joined(), "shardrt_restore", code);
  for (int i = 0; i < self->count && code == SHARDRT_OK; i++)
    if (p < 0 || i == p) self->loaders[i].before.loader = 0;
  return code;
}

void shardrt_text_free(char *text) {
  alloc_free(text);
}

int shardrt_allreduce(void *data, size_t n, int32_t dtype, const shardrt_mesh *mesh, const char *axis) {
  NUMERIC_STATE_OF_C;
  int code = membership_check("shardrt_allreduce");
  if (code == SHARDRT_OK) code = check_resting("shardrt_allreduce", NULL, -1);
  if (code < 0) return code;
  shardrt_job_at(shardrt_joined(), "shardrt_allreduce");
  code = allreduce_run(shardrt_joined(), data, n, dtype, mesh, axis);
  job_after(shardrt_joined(), "shardrt_allreduce", code);
  return code;
}
