#include "library/library_call.h"

#include "base/alloc.h"
#include "base/error.h"
#include "lua/state.h"
#include "system/time_slice.h"

/* Instructions from one look at the clock to the next. Of a loop that LuaJIT has compiled only those count for which it
 * is left, as it is for steps of the collector. */
enum { LOOK = 100 };

/* Calls the function, which Lua calls in turn, so that what it raises is caught. */
static int call_safely(lua_State *L, lua_CFunction function, void *context) {
  const int status = lua_cpcall(L, function, context);
  const int code = status == 0 ? SHARDRT_OK : lua_state_failed(L, status, "the recipe's Lua state");
  lua_settop(L, 0);
  return code;
}

/* ---- a state ---------------------------------------------------------------------------------------------------- */

struct library_opening {
  struct library *self;
  const char *module;
  const char *recipe;
  int argc;
  const char *const *argv;
};

static int load_library(lua_State *L) {
  const struct library_opening *opening = lua_touserdata(L, 1);
  lua_state_arguments(L, opening->recipe, opening->argc, opening->argv);
  lua_getglobal(L, "require");
  lua_pushstring(L, opening->module);
  lua_call(L, 1, 1);
  opening->self->functions = luaL_ref(L, LUA_REGISTRYINDEX);
  return 0;
}

int library_new(const char *module, const char *recipe, int argc, const char *const *argv, struct library *out) {
  int code = lua_state_new(&out->L);
  if (code < 0) return code;
  struct library_opening opening = {.self = out, .module = module, .recipe = recipe, .argc = argc, .argv = argv};
  return call_safely(out->L, load_library, &opening);
}

void library_free(struct library *self) {
  if (self->L != NULL) lua_close(self->L);
  *self = (struct library){0};
}

static void look_at_clock(lua_State *L, lua_Debug *place) {
  (void)place;
  if (time_slice_pause() == SHARDRT_OK) return;
  lua_sethook(L, look_at_clock, LUA_MASKCOUNT, 1); /* a recipe that catches errors hears of it again */
  lua_pushstring(L, shardrt_error_message());
  lua_error(L);
}

void library_watch(const struct library *self, bool looks) {
  if (self->L != NULL) lua_sethook(self->L, looks ? look_at_clock : NULL, looks ? LUA_MASKCOUNT : 0, LOOK);
}

/* ---- a call ----------------------------------------------------------------------------------------------------- */

struct library_frame {
  const struct library *self;
  const char *function;
  const struct library_arguments *given;
  struct library_answer answer;
  int code;
};

void library_texts_free(char **texts, int count) {
  for (int i = 0; texts != NULL && i < count; i++) alloc_free(texts[i]);
  alloc_free(texts);
}

/* Copies of the list of texts on the stack's top. Texts are read as they are: that takes no memory of Lua's. */
static int copy_texts(lua_State *L, struct library_answer *out) {
  const int count = (int)lua_objlen(L, -1);
  char **made = alloc_zeros((size_t)count, sizeof *made);
  if (made == NULL) return ALLOC_FAILED;
  for (int i = 0; i < count; i++) {
    lua_rawgeti(L, -1, i + 1);
    made[i] = alloc_text("%s", lua_tostring(L, -1));
    lua_pop(L, 1);
    if (made[i] == NULL) {
      library_texts_free(made, i);
      return ALLOC_FAILED;
    }
  }
  out->texts = made;
  out->count = count;
  return SHARDRT_OK;
}

static int copy_text(lua_State *L, struct library_answer *out) {
  out->text = alloc_text("%s", lua_tostring(L, -1));
  return out->text == NULL ? ALLOC_FAILED : SHARDRT_OK;
}

static int copy_answer(lua_State *L, struct library_answer *out) {
  switch (lua_type(L, -1)) {
  case LUA_TSTRING:
    return copy_text(L, out);
  case LUA_TTABLE:
    return copy_texts(L, out);
  case LUA_TBOOLEAN:
    out->is_false = !lua_toboolean(L, -1);
    return SHARDRT_OK;
  default:
    out->number = lua_tonumber(L, -1);
    return SHARDRT_OK;
  }
}

static int run_call(lua_State *L) {
  struct library_frame *frame = lua_touserdata(L, 1);
  const struct library_arguments *given = frame->given;
  const int before = 2; /* the frame and the table of functions */
  lua_rawgeti(L, LUA_REGISTRYINDEX, frame->self->functions);
  lua_getfield(L, before, frame->function);
  int count = 0;
  if (given != NULL && given->has_number) lua_pushinteger(L, given->number), count++;
  if (given != NULL && given->pointer != NULL) lua_pushlightuserdata(L, given->pointer), count++;
  if (given != NULL && given->text != NULL) lua_pushstring(L, given->text), count++;
  lua_call(L, count, 2);
  frame->code = (int)lua_tonumber(L, before + 1);
  if (frame->code < 0) {
    const char *message = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error that is not a text";
    error_set(frame->code, "%s", message);
    return 0;
  }
  const int code = copy_answer(L, &frame->answer);
  if (code < 0) frame->code = code;
  return 0;
}

int library_call(const struct library *self, const char *function, const struct library_arguments *given,
                 struct library_answer *out) {
  struct library_frame frame = {.self = self, .function = function, .given = given};
  const int code = call_safely(self->L, run_call, &frame);
  if (out != NULL) *out = frame.answer;
  return code < 0 ? code : frame.code;
}
