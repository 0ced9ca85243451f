# shardrt. On a bare Debian 12 or 13 with git and make: `make demo` and `make test` install what is missing, then build.
#
#   make            builds build/shardrt            make demo     the main job on real data
#   make test       runs every spec                 make lint     format, static analysis, luacheck
#   make test-python  the Python package with PyTorch and JAX, which it installs
#   make specs SPECS=tests/dataset/tar_spec.lua             runs one, and installs nothing
#   make soak       kills a job more than a hundred times
#   make fuzz       each reader a minute of bad input (FUZZ_SECONDS=, FUZZ="npy tar")
#   make fuzz-jax   random programs of np's words beside JAX (JAX_PYTHON=, PROGRAMS=, SEED=)
#   make asan|tsan  the specs under sanitizers      make bench    speed, as ratios in one run (PEERS=1: beside others)
#   make wheel      a wheel for pip, in dist/       make test-wheel   and tries it as a user would
#   make tarball    a folder that runs anywhere, in dist/           make test-tarball   and tries it on bare Debians
#   make cuda       builds the plug-in for GPUs, too (as `make` does where CUDA's toolkit is), or says what is missing
#   make install PREFIX=/usr/local                  make uninstall   removes what that laid
#   make clean      removes what was built          make help     prints this     V=1 shows the commands
#
# LuaJIT, zlib and a C compiler are enough; `make` shows a table of what else it found. WITHOUT="hdf5 curl" leaves libraries
# out, MPI=mpich and MPICC=… choose the MPI: docs/building.md. CPPFLAGS, CFLAGS, CXXFLAGS and LDFLAGS, from the environment or
# the command line, stand behind the project's own flags.
# `make` builds without asserts (-DNDEBUG), for users, the demo and `make bench`. Specs run with asserts on, in a program of
# their own in build-test: half a minute more on two cores, once; the kernels for GPUs, which take minutes, are shared. The
# sanitizers and `make fuzz` have asserts, too. `make CPPFLAGS=-UNDEBUG` builds build/shardrt with them.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CC       = gcc
.DEFAULT_GOAL := all
MAKEFLAGS += -r # none of the rules that make brings: to look through them took half of its time
# Builds on all cores, where nobody said on how many. What runs is not told: it may call make, too.
PARALLEL = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

SOURCES  := $(sort $(shell grep -rLxE --include='*.c' '// build: (MPI )?plug-in' runtime))
HEADERS  := $(sort $(shell find runtime -name '*.h'))
LUA      := $(sort $(shell find lua -name '*.lua'))
OBJECTS  := $(SOURCES:runtime/%.c=$(BUILD)/%.o)
LUA_OBJECTS := $(LUA:lua/%.lua=$(BUILD)/lua/%.o) $(BUILD)/lua/shardrt/cdef.o $(BUILD)/lua/modules.o
RULES    := Makefile make/packages.mk

SANITIZE ?=
OPTIMIZE ?= -O2
ASSERTS  ?=
# 1: a warning is an error, as `make lint` has it. It must not stop a user, whose compiler may know more of them.
WERROR   ?=
ERRORS    = $(if $(WERROR),-Werror)
WARNINGS  = -Wall -Wextra $(ERRORS) -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes
C_FLAGS   = -std=c11 -ffp-contract=off -D_GNU_SOURCE -Iruntime $(INCLUDES) $(OPTIMIZE) -g -fPIC -fno-semantic-interposition -pthread -fno-omit-frame-pointer $(WARNINGS) \
            $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(if $(ASSERTS)$(SANITIZE),,-DNDEBUG)
# Libraries that a recipe loads see shardrt_*, and nothing else of the program; specs look into it.
SEEN      = $(if $(ASSERTS)$(SANITIZE),-Wl$(comma)-E,'-Wl$(comma)--export-dynamic-symbol=shardrt_*')
LD_FLAGS  = -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE))
# What a source itself asks for, in a line "// build: -O3 -fno-math-errno"; sanitizers slow -O3 down.
ASKING   := $(shell grep -rl '^// build: -' runtime tests/standin)
asked_flags = $(if $(filter $<,$(ASKING)),$(filter -%,$(shell sed -n 's|^// build: ||p' $<)))
own_flags = $(filter-out $(if $(SANITIZE),-O3),$(asked_flags))
compile   = $(CC) $(C_FLAGS) $(1) $(own_flags) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
link      = $(CC) $(LD_FLAGS) $(1) $(LDFLAGS) -o $@ $^ $(LIBS)
quiet     = $(if $(V),,@echo "  $(1)  $@";)

# mpirun as root and with more ranks than cores (OpenMPI 4's word for it, and 5's), without the user having to know how.
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe

include make/packages.mk make/cuda.mk make/mpi.mk make/libraries.mk make/library.mk make/install.mk make/wheel.mk make/tarball.mk \
        make/python.mk tests/standin/standin.mk tests/fuzz/fuzz.mk tests/fuzz_jax/fuzz_jax.mk tests/job/job.mk tests/bench/bench.mk

.PHONY: all library demo test test-slurm test-report specs soak asan tsan lint lint-only clean help
.DELETE_ON_ERROR:

all: $(BUILD)/shardrt library $(if $(CUDA_MISSING)$(SANITIZE),,$(BUILD)/shardrt-cuda.so)

# Modules of Lua that are written in C see LuaJIT.
$(BUILD)/shardrt $(BUILD)/users/shardrt: $(OBJECTS) $(LUA_OBJECTS) $(if $(SANITIZE),tests/support/dlclose.c)
	@mkdir -p $(@D)
	$(call quiet,link )$(call link,-Wl$(comma)--no-as-needed $(SEEN))
# The program as users have it, from a build for specs.
$(BUILD)/users/shardrt: SEEN = '-Wl,--export-dynamic-symbol=shardrt_*'
$(OBJECTS): $(BUILD)/%.o: runtime/%.c $(RULES) | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,cc   )$(compile)
-include $(OBJECTS:.o=.d)

# Lua files become objects, and a list of them, in which `require` finds them (runtime/lua/state.h).
lua_module = $(patsubst %.init,%,$(subst /,.,$(patsubst lua/%.lua,%,$(1))))
$(BUILD)/lua/%.o: lua/%.lua | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,lua  )luajit -b -g -n $(call lua_module,$<) $< $@
# The FFI's declarations are the public header itself.
$(BUILD)/lua/shardrt/cdef.lua: runtime/shardrt.h | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,cdef ){ echo 'return [==['; $(CC) -E -P -DSHARDRT_CDEF -Iruntime -MMD -MP -MF $@.d -MT $@ $<; echo ']==]'; } > $@
-include $(BUILD)/lua/shardrt/cdef.lua.d
$(BUILD)/lua/shardrt/cdef.o: $(BUILD)/lua/shardrt/cdef.lua
	$(call quiet,lua  )luajit -b -n shardrt.cdef $< $@
lua_symbol = luaJIT_BC_$(subst .,_,$(1))
LUA_MODULES := $(foreach file,$(LUA),$(call lua_module,$(file))) shardrt.cdef
$(BUILD)/lua/modules.c: $(LUA) $(RULES) | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,list )printf '%s\n' '#include "lua/state.h"' \
	  $(foreach module,$(LUA_MODULES),'extern const unsigned char $(call lua_symbol,$(module))[];') 'const struct lua_module lua_modules[] = {' \
	  $(foreach module,$(LUA_MODULES),'  {"$(module)", $(call lua_symbol,$(module))},') '  {0, 0}};' > $@
$(BUILD)/lua/modules.o: $(BUILD)/lua/modules.c
	$(call quiet,cc   )$(compile)

demo: deps-demo
	@$(MAKE) --no-print-directory $(PARALLEL) all
	$(MPIRUN) -n 4 $(BUILD)/shardrt --devices 2 recipes/data_parallel.lua

# The build with asserts, which runs specs.
TESTED  = $(BUILD)-test
CHECKED = --no-print-directory BUILD=$(TESTED) ASSERTS=1 CUDA_KERNELS=$(CUDA_KERNELS)
test: deps
	@$(MAKE) $(CHECKED) $(PARALLEL) all standin $(TESTED)/fuzz/replay $(JOB_PROGRAMS:$(BUILD)/%=$(TESTED)/%)
	@$(MAKE) $(CHECKED) specs

SPECS ?= $(sort $(shell find tests -name '*_spec.lua'))
ifneq ($(ASSERTS)$(SANITIZE),)
specs: $(BUILD)/shardrt library $(BUILD)/fuzz/replay $(JOB_PROGRAMS) standin
	@SHARDRT=$(abspath $(BUILD)/shardrt) $(BUILD)/shardrt tests/run.lua $(SPECS)
else
specs:
	@$(MAKE) $(CHECKED) specs
endif

# What takes longer than `make test` may: many more random kills.
soak: deps
	@$(MAKE) $(CHECKED) all
	SHARDRT=$(abspath $(TESTED)/shardrt) SHARDRT_KILLS=$(KILLS) $(TESTED)/shardrt --devices 8 test tests/loader/fault_spec.lua
KILLS ?= 120

# What starts daemons, which a machine may not want: a Slurm of its own.
test-slurm: deps
	$(call install_for,slurm)
	@SHARDRT_TEST_SLURM=1 $(MAKE) $(CHECKED) specs SPECS=tests/job/slurm_spec.lua

# What is big: a browser that shows pages of reports.
test-report: deps
	$(call install_for,report)
	@$(MAKE) $(CHECKED) specs SPECS=tests/job/report_spec.lua

# The same specs with every access (asan) or every race between threads (tsan) watched; suppressed are OpenMPI's and
# LuaJIT's own internals only.
asan tsan: deps
	@$(MAKE) --no-print-directory $(PARALLEL) BUILD=$(BUILD)-$@ SANITIZE=$(SANITIZE_$@) OPTIMIZE=-O1 all
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-$@ SANITIZE=$(SANITIZE_$@) OPTIMIZE=-O1 SHARDRT_SANITIZER=$@ \
	  SHARDRT_TEST_LIMIT=$(or $(SHARDRT_TEST_LIMIT),1800) specs
SANITIZE_asan = address,undefined
SANITIZE_tsan = thread
# Up to gcc 13 the library takes a block of a thread's variables that malloc put at a certain place in a page for one of
# glibc's before 2.25, and LeakSanitizer dies of what it reads in front of it ("Tracer caught signal 11").
export ASAN_OPTIONS  = detect_leaks=1:abort_on_error=0:allocator_may_return_null=1:intercept_tls_get_addr=0
export LSAN_OPTIONS  = suppressions=$(CURDIR)/tests/support/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS = halt_on_error=1:print_stacktrace=1
# Code that is not instrumented (OpenMPI, LuaJIT) synchronises by atomics that the sanitizer does not see.
export TSAN_OPTIONS  = ignore_noninstrumented_modules=1:halt_on_error=1:allocator_may_return_null=1
# UCX's hook of madvise would run in threads that the sanitizer takes for ended.
tsan: export UCX_MEM_EVENTS = no

TIDY_FLAGS = -std=c11 -D_GNU_SOURCE -Iruntime $(INCLUDES) $(MISSING)
tidy = @printf '%s\n' $(1) | xargs -P 2 -n 4 sh -c 'clang-tidy --quiet "$$@" -- $(TIDY_FLAGS) $(2) 2>&1 | \
  { ! grep -v "warnings\? generated"; }' tidy
lint: deps-lint
	@$(MAKE) --no-print-directory lint-only
lint-only:
	@$(MAKE) --no-print-directory $(PARALLEL) BUILD=$(BUILD)-lint WERROR=1 $(BUILD)-lint/shardrt $(BUILD)-lint/fuzz/replay $(JOB_PROGRAMS:$(BUILD)/%=$(BUILD)-lint/%) standin
	@$(MAKE) --no-print-directory $(BUILD)/lua/shardrt/cdef.lua
	@clang-format --dry-run -Werror $(SOURCES) $(MPI_SOURCES) $(PLUGIN) $(KERNELS) $(HEADERS) \
	  $(sort $(shell find runtime -name '*.cuh')) \
	  $(wildcard tests/bench/*.c tests/fuzz/*.[ch] tests/fuzz/targets/*.c tests/fuzz/targets/*/*.c tests/job/*.c tests/standin/*.c tests/standin/*.cc \
	  tests/standin/*.h tests/standin/include/* tests/library/*.c tests/library/*.cpp \
	  examples/*/*.c examples/*/*.cpp examples/*/*.hpp examples/*/*.cu)
	$(call tidy,$(SOURCES))
	$(call tidy,$(MPI_SOURCES),$(filter -I%,$(or $(OPENMPI_FLAGS),$(MPICH_FLAGS))))
	$(call tidy,$(PLUGIN),-Itests -Itests/standin/include)
	luacheck -q lua recipes tests examples

# The comment at the top of this file.
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

clean:
	rm -rf $(BUILD) $(addprefix $(BUILD)-,test asan tsan fuzz lint)
