/* library_call.h - calls of a Lua state: of the functions of lua/shardrt/program/library.lua in a recipe's, of
 * job_watch.lua there in the one that watches all of them.
 *
 * All that touches Lua happens where what it raises is caught: where no memory is left, too, which is ENOMEM, and the
 * state can be called again. */
#ifndef SHARDRT_LIBRARY_LIBRARY_CALL_H
#define SHARDRT_LIBRARY_LIBRARY_CALL_H

#include <stdbool.h>

#include "lua/interpreter.h"

struct library {
  lua_State *L;  /* NULL: none */
  int functions; /* the reference to them */
};

/* What a function is given, in this order, without what is not there. */
struct library_arguments {
  int number; /* 0 and more */
  bool has_number;
  void *pointer;    /* NULL: none */
  const char *text; /* NULL: none */
};

/* What it returned beside its code; all zeros where that was nil. The texts are the caller's. */
struct library_answer {
  double number;
  bool is_false;
  char *text;
  char **texts; /* [count] */
  int count;
};

/* Makes a state for the recipe, with its arguments, and the functions of `module` in it; NULL: for no recipe. Where it
 * fails, too, library_free gives it back. */
int library_new(const char *module, const char *recipe, int argc, const char *const *argv, struct library *out);
void library_free(struct library *self);
/* Begins or ends to look at the clock while Lua runs: where the slice that runs here (system/time_slice.h) is over, it
 * rests, and where that was cancelled, Lua fails. Loops that LuaJIT has compiled are not looked at. A state that could
 * not be made is left alone. */
void library_watch(const struct library *self, bool looks);
/* Returns the function's code, and below 0 its message. `out` may be NULL, of one whose answer is a number or none. */
int library_call(const struct library *self, const char *function, const struct library_arguments *given,
                 struct library_answer *out);

void library_texts_free(char **texts, int count);

#endif
