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
#include "lua/state.h"
#include "memory/array.h"
#include "recipe/batch.h"
#include "recipe/membership.h"
#include "reshard/allreduce.h"
#include "system/numeric_state.h"
#include "system/time_slice.h"

enum { WHERE = 256 };

/* A loader that a recipe returned. */
struct part {
  char *name;             /* "" where it is alone */
  shardrt_loader *direct; /* which gives the batches; NULL: Lua does, now or always */
  int fields;             /* of the direct one's batches, */
  char **names;           /* and what they are called */
  int64_t steps;          /* of an epoch */
  char where[WHERE];      /* for reports about processes that wait for each other */
};

/* A recipe that was run. Its handles own it together. */
struct opened {
  struct membership_guest guest; /* of the job; the first member */
  atomic_int owners;
  lua_State *L; /* NULL: its job was left */
  int library;  /* reference to shardrt.program.library */
  int count;
  struct part *parts;
  struct time_slice *slice; /* in which calls of shardrt_next are made that may rest; NULL: there was none */
  int next_part;            /* of the call that is made there, */
  int next_code;            /* and what came of it */
  shardrt_batch *batch;     /* NULL: none */
};

/* Whose call of shardrt_next rests. The processes' calls have one order, so nothing else is called meanwhile. */
static struct opened *resting;

struct shardrt_recipe {
  struct opened *opened;
  int part; /* -1: all of them */
};

/* ---- calls of Lua ----------------------------------------------------------------------------------------------- */

enum { LIBRARY = 1, CODE, RESULT }; /* where values lie on the stack; nothing lies there between calls */

static void begin_call(const struct opened *self, const char *function) {
  lua_settop(self->L, 0);
  lua_rawgeti(self->L, LUA_REGISTRYINDEX, self->library);
  lua_getfield(self->L, LIBRARY, function);
}

/* What the function returns beside its code lies at RESULT then. */
static int end_call(const struct opened *self, int given) {
  if (lua_pcall(self->L, given, 2, 0) != 0) {
    const char *message = lua_tostring(self->L, -1);
    return error_set(SHARDRT_ENOMEM, "%s", message != NULL ? message : "out of memory");
  }
  const int code = (int)lua_tonumber(self->L, CODE);
  if (code >= 0) return code;
  const char *message = lua_tostring(self->L, RESULT);
  return error_set(code, "%s", message != NULL ? message : "an error that is not a text");
}

/* ---- a recipe that is run --------------------------------------------------------------------------------------- */

static void texts_free(char **texts, int count) {
  for (int i = 0; texts != NULL && i < count; i++) alloc_free(texts[i]);
  alloc_free(texts);
}

/* Copies of the list of texts at RESULT. */
static int copy_texts(lua_State *L, char ***out, int *count) {
  const int n = (int)lua_objlen(L, RESULT);
  char **made = alloc_zeros((size_t)n, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, RESULT, i + 1);
    made[i] = alloc_text("%s", lua_tostring(L, -1));
    lua_settop(L, RESULT);
    if (made[i] == NULL) {
      texts_free(made, i);
      return ALLOC_FAILED;
    }
  }
  *out = made;
  *count = n;
  return SHARDRT_OK;
}

/* Looks whether from now on C's loader gives the batches by itself. */
static int find_direct(struct opened *self, int p) {
  struct part *part = &self->parts[p];
  shardrt_loader *loader = NULL;
  begin_call(self, "direct");
  lua_pushinteger(self->L, p + 1);
  lua_pushlightuserdata(self->L, &loader);
  int code = end_call(self, 2);
  if (code == SHARDRT_OK && loader != NULL) code = copy_texts(self->L, &part->names, &part->fields);
  if (code == SHARDRT_OK) part->direct = loader;
  return code;
}

static int fill_part(struct opened *self, int p, const char *recipe) {
  struct part *part = &self->parts[p];
  begin_call(self, "steps_per_epoch");
  lua_pushinteger(self->L, p + 1);
  int code = end_call(self, 1);
  if (code < 0) return code;
  part->steps = (int64_t)lua_tonumber(self->L, RESULT);
  snprintf(part->where, sizeof part->where, "shardrt_next of %s%s%s", recipe, part->name[0] != '\0' ? ", " : "",
           part->name);
  return find_direct(self, p);
}

/* The parts, from the list of names that opening returned. */
static int make_parts(struct opened *self, const char *recipe) {
  char **names;
  int count, code = copy_texts(self->L, &names, &count);
  if (code < 0) return code;
  self->parts = alloc_zeros((size_t)count, sizeof *self->parts);
  if (self->parts == NULL) {
    texts_free(names, count);
    return ALLOC_FAILED;
  }
  self->count = count;
  for (int p = 0; p < count; p++) self->parts[p].name = names[p];
  alloc_free(names);
  for (int p = 0; p < count && code == SHARDRT_OK; p++) code = fill_part(self, p, recipe);
  return code;
}

static int run_recipe(struct opened *self, const char *recipe, int argc, const char *const *argv) {
  int code = lua_state_new(&self->L);
  if (code < 0) return code;
  lua_State *L = self->L;
  lua_state_arguments(L, recipe, argc, argv);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "shardrt.program.library");
  if (lua_pcall(L, 1, 1, 0) != 0) return error_set(SHARDRT_EINVAL, "%s", lua_tostring(L, -1));
  self->library = luaL_ref(L, LUA_REGISTRYINDEX);
  begin_call(self, "open");
  lua_pushlightuserdata(L, shardrt_joined());
  lua_pushstring(L, recipe);
  code = end_call(self, 2);
  return code < 0 ? code : make_parts(self, recipe);
}

/* The end of its loaders. A call that rests is gone on with: where the job is abandoned, it fails at once. */
static void end_recipe(struct opened *self) {
  if (self->L == NULL) return;
  if (resting == self) {
    time_slice_go(self->slice, INFINITY);
    shardrt_batch_free(self->batch);
    resting = NULL;
  }
  time_slice_free(self->slice);
  self->slice = NULL;
  for (int p = 0; p < self->count; p++) self->parts[p].direct = NULL;
  if (self->library != 0) {
    begin_call(self, "close");
    end_call(self, 0);
  }
  lua_close(self->L);
  self->L = NULL;
}

static void opened_free(struct opened *self) {
  NUMERIC_STATE_OF_C;
  end_recipe(self);
  for (int p = 0; p < self->count; p++) {
    texts_free(self->parts[p].names, self->parts[p].fields);
    alloc_free(self->parts[p].name);
  }
  alloc_free(self->parts);
  alloc_free(self);
}

static void leave_job(struct membership_guest *guest) {
  struct opened *self = (struct opened *)guest;
  end_recipe(self);
  if (atomic_load(&self->owners) == 0) opened_free(self); /* its handles were closed on another thread */
}

static int new_handle(struct opened *opened, int part, shardrt_recipe **out) {
  shardrt_recipe *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  *made = (shardrt_recipe){.opened = opened, .part = part};
  atomic_fetch_add(&opened->owners, 1);
  *out = made;
  return SHARDRT_OK;
}

/* Where a call rests that it is not. */
static int check_resting(const char *caller, const struct opened *self, int part) {
  if (resting == NULL || (resting == self && self->next_part == part)) return SHARDRT_OK;
  return error_set(SHARDRT_EINVAL, "%s: a call of shardrt_next has returned SHARDRT_EAGAIN; it is called again first",
                   caller);
}

int shardrt_open(const char *recipe, int argc, const char *const *argv, shardrt_recipe **out) {
  NUMERIC_STATE_OF_C;
  int code = membership_check("shardrt_open");
  if (code == SHARDRT_OK) code = check_resting("shardrt_open", NULL, -1);
  if (code < 0) return code;
  struct opened *made = alloc_zeros(1, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  made->guest.leave = leave_job;
  code = run_recipe(made, recipe, argc, argv);
  if (code == SHARDRT_OK) code = new_handle(made, -1, out);
  if (code < 0)
    opened_free(made);
  else
    membership_add(&made->guest);
  return code;
}

void shardrt_close(shardrt_recipe *recipe) {
  if (recipe == NULL) return;
  struct opened *self = recipe->opened;
  alloc_free(recipe);
  if (atomic_fetch_sub(&self->owners, 1) != 1) return;
  /* On another thread it goes when the job is left; a forked process never ran it. */
  if (self->L != NULL && membership_check("shardrt_close") < 0) return;
  membership_remove(&self->guest);
  opened_free(self);
}

/* ---- its loaders ------------------------------------------------------------------------------------------------ */

static bool is_alone(const struct opened *self) {
  return self->count == 1 && self->parts[0].name[0] == '\0';
}

int shardrt_recipe_count(const shardrt_recipe *recipe) {
  return is_alone(recipe->opened) || recipe->part >= 0 ? 0 : recipe->opened->count;
}

const char *shardrt_recipe_name(const shardrt_recipe *recipe, int i) {
  return i >= 0 && i < shardrt_recipe_count(recipe) ? recipe->opened->parts[i].name : NULL;
}

/* "test", "train". */
static void list_names(const struct opened *self, char *text, size_t room) {
  size_t used = 0;
  text[0] = '\0';
  for (int p = 0; p < self->count && used < room; p++)
    used += (size_t)snprintf(text + used, room - used, "%s\"%s\"", p > 0 ? ", " : "", self->parts[p].name);
}

int shardrt_recipe_loader(shardrt_recipe *recipe, const char *name, shardrt_recipe **out) {
  const struct opened *self = recipe->opened;
  for (int p = 0; p < self->count; p++)
    if (strcmp(self->parts[p].name, name) == 0) return new_handle(recipe->opened, p, out);
  char names[512];
  list_names(self, names, sizeof names);
  if (is_alone(self))
    return error_set(SHARDRT_EINVAL, "there is no loader \"%s\": the recipe returned one alone, without a name", name);
  return error_set(SHARDRT_EINVAL, "there is no loader \"%s\"; the recipe returned %s", name, names);
}

/* Whether `caller` may go on; *part becomes the one that is meant, -1 where that may be all of them. */
static int check_call(const shardrt_recipe *recipe, const char *caller, bool takes_all, int *part) {
  const struct opened *self = recipe->opened;
  int code = membership_check(caller);
  if (code < 0) return code;
  if (self->L == NULL) return error_set(SHARDRT_EINVAL, "%s: the job that the recipe was opened in was left", caller);
  *part = is_alone(self) ? 0 : recipe->part;
  code = check_resting(caller, self, takes_all ? -1 : *part);
  if (code < 0 || *part >= 0 || takes_all) return code;
  char names[512];
  list_names(self, names, sizeof names);
  return error_set(SHARDRT_EINVAL, "%s: the recipe returned loaders %s; shardrt_recipe_loader picks one", caller,
                   names);
}

int64_t shardrt_steps(const shardrt_recipe *recipe) {
  const int part = is_alone(recipe->opened) ? 0 : recipe->part;
  return part < 0 ? -1 : recipe->opened->parts[part].steps;
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

static int next_direct(const struct part *part, shardrt_batch **out) {
  shardrt_batch *made;
  int code = recipe_batch_new(part->fields, (const char *const *)part->names, &made);
  if (code < 0) return code;
  code = shardrt_loader_next(part->direct, recipe_batch_arrays(made));
  if (code == 1)
    *out = made;
  else
    shardrt_batch_free(made);
  return code;
}

/* Arrays of their own, over the same buffers, of the batch that Lua holds. */
static int share_arrays(const struct opened *self, shardrt_batch *batch) {
  shardrt_array **arrays = recipe_batch_arrays(batch);
  const int count = shardrt_batch_fields(batch);
  begin_call(self, "arrays");
  lua_pushlightuserdata(self->L, arrays);
  int code = end_call(self, 1), shared = 0;
  while (code == SHARDRT_OK && shared < count) {
    code = array_like(arrays[shared], &arrays[shared]);
    if (code == SHARDRT_OK) shared++;
  }
  for (int i = shared; i < count; i++) arrays[i] = NULL; /* Lua's */
  return code;
}

static int next_in_lua(struct opened *self, int p, shardrt_batch **out) {
  begin_call(self, "next");
  lua_pushinteger(self->L, p + 1);
  int code = end_call(self, 1);
  if (code != 1) return code;
  char **names;
  int count;
  code = copy_texts(self->L, &names, &count);
  if (code < 0) return code;
  shardrt_batch *made;
  code = recipe_batch_new(count, (const char *const *)names, &made);
  texts_free(names, count);
  if (code < 0) return code;
  code = share_arrays(self, made);
  if (code == SHARDRT_OK) code = find_direct(self, p);
  if (code < 0) {
    shardrt_batch_free(made);
    return code;
  }
  *out = made;
  return 1;
}

static int next_batch(struct opened *self, int p, shardrt_batch **out) {
  const struct part *part = &self->parts[p];
  shardrt_job_at(shardrt_joined(), part->where);
  return part->direct != NULL ? next_direct(part, out) : next_in_lua(self, p, out);
}

/* What runs in the slice. */
static void next_in_slice(void *context) {
  struct opened *self = context;
  self->next_code = next_batch(self, self->next_part, &self->batch);
}

int shardrt_next(shardrt_recipe *recipe, double seconds, shardrt_batch **out) {
  NUMERIC_STATE_OF_C;
  struct opened *self = recipe->opened;
  int p = 0, code = check_call(recipe, "shardrt_next", false, &p);
  if (code < 0) return code;
  const bool is_endless = seconds < 0 || isinf(seconds);
  if (is_endless && resting == NULL) return next_batch(self, p, out);
  if (self->slice == NULL) code = time_slice_new(next_in_slice, self, &self->slice);
  if (code < 0) return code;
  self->next_part = p;
  if (!time_slice_go(self->slice, is_endless ? INFINITY : seconds)) {
    resting = self;
    return error_set(SHARDRT_EAGAIN, "the next batch is not there yet");
  }
  resting = NULL;
  if (self->next_code == 1) *out = self->batch;
  self->batch = NULL;
  return self->next_code;
}

/* ---- what Lua is asked for -------------------------------------------------------------------------------------- */

/* A text that a function of the library returns for a loader, or, by 0, for all. */
static int ask(shardrt_recipe *recipe, const char *caller, const char *function, char **out) {
  NUMERIC_STATE_OF_C;
  int p = 0, code = check_call(recipe, caller, true, &p);
  if (code < 0) return code;
  const struct opened *self = recipe->opened;
  begin_call(self, function);
  lua_pushinteger(self->L, p + 1);
  code = end_call(self, 1);
  if (code < 0) return code;
  const char *found = lua_tostring(self->L, RESULT);
  assert(found != NULL);
  char *text = alloc_text("%s", found);
  if (text == NULL) return ALLOC_FAILED;
  *out = text;
  return SHARDRT_OK;
}

int shardrt_state(shardrt_recipe *recipe, char **json) {
  return ask(recipe, "shardrt_state", "state", json);
}

int shardrt_stats(shardrt_recipe *recipe, char **json) {
  return ask(recipe, "shardrt_stats", "stats", json);
}

int shardrt_restore(shardrt_recipe *recipe, const char *json) {
  NUMERIC_STATE_OF_C;
  int p = 0, code = check_call(recipe, "shardrt_restore", true, &p);
  if (code < 0) return code;
  begin_call(recipe->opened, "restore");
  lua_pushinteger(recipe->opened->L, p + 1);
  lua_pushstring(recipe->opened->L, json);
  return end_call(recipe->opened, 2);
}

void shardrt_text_free(char *text) {
  alloc_free(text);
}

int shardrt_allreduce(void *data, size_t n, int32_t dtype, const shardrt_mesh *mesh, const char *axis) {
  NUMERIC_STATE_OF_C;
  int code = membership_check("shardrt_allreduce");
  if (code == SHARDRT_OK) code = check_resting("shardrt_allreduce", NULL, -1);
  return code < 0 ? code : allreduce_run(shardrt_joined(), data, n, dtype, mesh, axis);
}
