# shardrt. On a bare Debian 12 or 13 with git and make: `make demo` and `make test` install what is missing, then build.
#
#   make            builds build/shardrt            make demo     the main job on real data
#   make test       runs every spec                 make lint     format, static analysis, luacheck
#   make soak       kills a job more than a hundred times
#   make fuzz       each reader a minute of bad input (FUZZ_SECONDS=, FUZZ="npy tar")
#   make asan|tsan  the specs under sanitizers      make bench    speed, as ratios in one run (PEERS=1: beside others)
#   make cuda       builds the plug-in for GPUs, too (as `make` does where CUDA's toolkit is), or says what is missing
#   make install PREFIX=/usr/local                  make clean                   V=1 shows the commands

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CC       = gcc

# What the project needs from Debian, by what it is for.
PACKAGES_BUILD = gcc libc6-dev pkgconf libopenmpi-dev openmpi-bin libluajit-5.1-dev luajit libxxhash-dev zlib1g-dev \
                 librandom123-dev libisal-dev libjpeg62-turbo-dev libspng-dev liburing-dev \
                 libhighwayhash-dev libbrotli-dev libzstd-dev libsnappy-dev \
                 libblosc-dev libhdf5-dev libopenblas0-pthread libcurl4-openssl-dev libssl-dev
PACKAGES_CUDA  = g++
PACKAGES_TEST  = g++ lua-busted lua-cjson dataset-fashion-mnist iproute2 nginx-light openssl python3
# `make lint` wants those of Debian 12: other versions of clang-format lay the code out otherwise.
PACKAGES_LINT  = clang-format clang-tidy lua-check
PACKAGES_FUZZ  = clang libclang-rt-dev
PACKAGES_PEERS = python3-venv
PACKAGES_FFCV  = python3-dev g++ libopencv-dev libturbojpeg0-dev
PACKAGES_SPDL  = libavdevice59

# The rest of this file needs no network.
# CUDA's: with the kernels in *.cu a library of its own, which the program opens when it is asked for.
PLUGIN   := $(wildcard $(addprefix runtime/,device/cuda.c device/event.c device/failure.c device/gpu.c device/library.c device/pinned.c \
  device/cuda_alloc.c device/topology.c device/transfer.c comm/transport/nccl.c compute/cuda/cublas.c))
KERNELS  := $(sort $(shell find runtime -name '*.cu'))
SOURCES  := $(filter-out $(PLUGIN),$(sort $(shell find runtime -name '*.c')))
HEADERS  := $(sort $(shell find runtime -name '*.h'))
LUA      := $(sort $(shell find lua -name '*.lua'))
OBJECTS  := $(SOURCES:runtime/%.c=$(BUILD)/%.o)
LUA_OBJECTS := $(LUA:lua/%.lua=$(BUILD)/lua/%.o) $(BUILD)/lua/shardrt/cdef.o

SANITIZE ?=
OPTIMIZE ?= -O2
# 1: a warning is an error, as `make lint` has it. It must not stop a user, whose compiler may know more of them.
WERROR   ?=
ERRORS    = $(if $(WERROR),-Werror)
WARNINGS  = -Wall -Wextra $(ERRORS) -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes
CFLAGS    = -std=c11 -D_GNU_SOURCE -Iruntime $(OPTIMIZE) -g -pthread -fno-omit-frame-pointer $(WARNINGS) \
            $(if $(SANITIZE),-fsanitize=$(SANITIZE))
# Asked for only where they are used, so that `make deps` works before pkg-config is there.
MPI_CFLAGS = $(shell pkg-config --cflags ompi-c)
LUA_CFLAGS = $(shell pkg-config --cflags luajit)
HDF5_CFLAGS = $(shell pkg-config --cflags hdf5-serial)
LIBS       = $(shell pkg-config --libs ompi-c luajit zlib libisal libjpeg spng liburing libbrotlidec libzstd snappy \
               libxxhash blosc hdf5-serial libcurl libcrypto) -lhighwayhash -lm -ldl
LDFLAGS    = -Wl,-E -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE))

# CUDA's toolkit: CUDA_HOME; else, of these, the first that has all that the plug-in needs: where pip puts it in the Python
# environment that is active (nvidia-cuda-nvcc and the others), where nvcc is, /usr/local/cuda, where pip puts it for the
# user. NCCL lies in NCCL_HOME; else in it, beside it, where pip puts it, or with the system's headers.
pip_folders = $(wildcard $(addsuffix /lib/python3*/site-packages/nvidia,$(1)))
PIP_FOLDERS := $(call pip_folders,$(VIRTUAL_ENV) $(HOME)/.local) $(wildcard /usr/local/lib/python3*/dist-packages/nvidia)
pip_nvcc = $(wildcard $(addsuffix /cu1*/bin/nvcc,$(1)))
CUDA_CANDIDATES := $(if $(CUDA_HOME),$(or $(realpath $(CUDA_HOME)),$(CUDA_HOME)),$(patsubst %/bin/nvcc,%,$(realpath \
  $(call pip_nvcc,$(call pip_folders,$(VIRTUAL_ENV))) $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc) \
  $(call pip_nvcc,$(PIP_FOLDERS)))))
nccl_home = $(or $(NCCL_HOME),$(patsubst %/include/nccl.h,%,$(firstword $(wildcard $(addsuffix /include/nccl.h,$(1) \
              $(1)/../nccl $(addsuffix /nccl,$(PIP_FOLDERS)) /usr)))))
cuda_libraries = $(firstword $(wildcard $(addprefix $(1)/,lib64 targets/x86_64-linux/lib lib)))
# What a toolkit lacks, and its version where that is below 13.
cuda_needs = $(if $(wildcard $(2)),,$(1))
cuda_missing = $(strip $(call cuda_needs,nvcc,$(1)/bin/nvcc) \
  $(call cuda_needs,cuda_runtime_api.h,$(1)/include/cuda_runtime_api.h) \
  $(call cuda_needs,nv/target,$(1)/include/nv/target) \
  $(call cuda_needs,libcudart_static.a,$(call cuda_libraries,$(1))/libcudart_static.a) \
  $(call cuda_needs,cublas_v2.h,$(1)/include/cublas_v2.h) \
  $(call cuda_needs,nccl.h,$(call nccl_home,$(1))/include/nccl.h))
cuda_old = $(shell awk '$$2 == "CUDART_VERSION" { if ($$3 < 13000) printf "%d.%d", $$3 / 1000, $$3 % 1000 / 10; exit }' \
             $(1)/include/cuda_runtime_api.h 2>/dev/null)
CUDA_TOOLKIT := $(firstword $(foreach home,$(CUDA_CANDIDATES),$(if $(call cuda_old,$(home))$(call cuda_missing,$(home)),,\
                  $(home))) $(CUDA_CANDIDATES))
CUDA_NCCL := $(call nccl_home,$(CUDA_TOOLKIT))
CUDA_LIBRARIES := $(call cuda_libraries,$(CUDA_TOOLKIT))
CUDA_OLD := $(call cuda_old,$(CUDA_TOOLKIT))
CUDA_MISSING := $(strip $(if $(CUDA_OLD),CUDA-13,$(call cuda_missing,$(CUDA_TOOLKIT))) $(if $(shell command -v g++),,g++))
CUDA_LACKS = $(if $(CUDA_OLD),CUDA 13: in $(CUDA_TOOLKIT) is $(CUDA_OLD),$(1)$(if $(CUDA_TOOLKIT), in $(CUDA_TOOLKIT)))
# The GPUs that kernels are compiled for, the newest one's as PTX, too: that is for all that are newer.
CUDA_ARCHS ?= 80 90
ARCHS := $(shell printf '%s\n' $(CUDA_ARCHS) | sort -u | sort -n)
ifneq ($(words $(ARCHS)),$(words $(shell printf '%s\n' $(CUDA_ARCHS) | sort -u | grep -E '^[1-9][0-9][0-9]?$$')))
  $(error CUDA_ARCHS is a list of compute capabilities without their points, as "80 90", not "$(CUDA_ARCHS)")
endif
ifeq ($(ARCHS),)
  $(error CUDA_ARCHS is empty; it lists compute capabilities without their points, as "80 90")
endif
# NCCL's headers go first, where it is another one than the toolkit's; the compiler knows the system's by itself.
CUDA_ELSEWHERE := $(realpath $(filter-out $(CUDA_TOOLKIT) /usr,$(CUDA_NCCL)))
CUDA_FLAGS  = $(addprefix -isystem ,$(addsuffix /include,$(CUDA_ELSEWHERE) $(CUDA_TOOLKIT))) -Iruntime
# Folders of libraries that the plug-in looks in, with ":" between them.
CUDA_FOLDERS = $(subst $(space),:,$(strip $(realpath $(CUDA_LIBRARIES) $(addsuffix /lib,$(CUDA_ELSEWHERE)))))
NVCC_FLAGS  = -std=c++17 -O3 -fmad=false $(if $(WERROR),-Werror all-warnings -Xcompiler -Werror) \
              -Xcompiler -fPIC,-Wall,-Wextra,-fno-exceptions -t 2 \
              $(foreach arch,$(ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
              -gencode arch=compute_$(lastword $(ARCHS)),code=compute_$(lastword $(ARCHS))
CUDA_OBJECTS := $(PLUGIN:runtime/%=$(BUILD)/cuda/%.o) $(KERNELS:runtime/%=$(BUILD)/cuda/%.o)
CUDA_SAYS = $(if $(CUDA_MISSING),cuda: no $(call CUDA_LACKS,$(firstword $(CUDA_MISSING)) found)$(comma) built for the host only, \
              cuda: $(CUDA_TOOLKIT)$(if $(CUDA_ELSEWHERE), with NCCL in $(CUDA_ELSEWHERE))$(comma) for $(addprefix sm_,$(ARCHS)))
comma := ,
space := $() #

quiet = $(if $(V),,@echo "  $(1)  $@";)

# mpirun as root and with more ranks than cores (OpenMPI 4's word for it, and 5's), without the user having to know how.
export OMPI_ALLOW_RUN_AS_ROOT=1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe

.PHONY: all cuda cuda-where plugin-sources standin deps deps-cuda deps-lint deps-ffcv deps-spdl demo test specs soak lint asan tsan fuzz bench peers install clean
.DELETE_ON_ERROR:

all: $(BUILD)/shardrt $(if $(CUDA_MISSING)$(SANITIZE),,$(BUILD)/shardrt-cuda.so)

$(BUILD)/shardrt: $(OBJECTS) $(LUA_OBJECTS) $(if $(SANITIZE),tests/support/dlclose.c)
	$(call quiet,link )$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(OBJECTS): | $(BUILD)/found
$(BUILD)/%.o: runtime/%.c Makefile
	@mkdir -p $(@D)
	$(call quiet,cc   )$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/comm/transport/mpi.o: CFLAGS += $(MPI_CFLAGS)
$(BUILD)/main.o $(BUILD)/transform/kind/lua.o: CFLAGS += $(LUA_CFLAGS)
$(BUILD)/dataset/chunked/hdf5_file.o $(BUILD)/dataset/chunked/hdf5_remote.o: CFLAGS += $(HDF5_CFLAGS)
# Loops that are to become vectors.
$(BUILD)/memory/convert.o $(addprefix $(BUILD)/transform/kind/,flip.o resample.o strides.o): CFLAGS += $(if $(SANITIZE),,-O3)
# The same, and comparisons and roots that set no flags which nobody reads.
$(addprefix $(BUILD)/compute/elementwise/,float32.o float64.o operand.o whole.o) \
$(addprefix $(BUILD)/compute/random/,deviate.o key.o threefry.o): \
  CFLAGS += $(if $(SANITIZE),,-O3) -fno-math-errno -fno-trapping-math
$(addprefix $(BUILD)/compute/,reduce/reduce_loops.o rearrange/place.o rearrange/tile.o matmul/wrap.o): CFLAGS += $(if $(SANITIZE),,-O3)
-include $(OBJECTS:.o=.d)

# What is built, said when it is another thing than the last time.
$(BUILD)/cuda/said: FORCE
	@mkdir -p $(@D); [ "$$(cat $@ 2>/dev/null)" = "$(strip $(CUDA_SAYS))" ] || { echo "$(strip $(CUDA_SAYS))" | tee $@; }
FORCE:
$(BUILD)/shardrt: | $(if $(SANITIZE)$(filter install,$(MAKECMDGOALS)),,$(BUILD)/cuda/said)
$(CUDA_OBJECTS): $(BUILD)/cuda/said Makefile
$(BUILD)/cuda/%.c.o: runtime/%.c
	@mkdir -p $(@D)
	$(call quiet,cc   )$(CC) $(CFLAGS) -fPIC $(CUDA_FLAGS) -DCUDA_LEAST=$(firstword $(ARCHS)) \
	  -DCUDA_LIBRARIES='"$(CUDA_FOLDERS)"' -MMD -MP -c -o $@ $<
$(BUILD)/cuda/%.cu.o: runtime/%.cu
	@mkdir -p $(@D)
	$(call quiet,nvcc )$(CUDA_TOOLKIT)/bin/nvcc $(NVCC_FLAGS) $(CUDA_FLAGS) -MMD -MP -c -o $@ $<
EXPORTS = runtime/device/exports.map
$(BUILD)/shardrt-cuda.so: $(CUDA_OBJECTS) $(EXPORTS)
	$(call quiet,link )$(CC) -shared -pthread -Wl,--version-script=$(EXPORTS) -o $@ $(CUDA_OBJECTS) -L$(CUDA_LIBRARIES) -lcudart_static -lstdc++ -lrt -ldl
-include $(CUDA_OBJECTS:.o=.d)

# For specs: what the plug-in is made of, and where the toolkit's headers are.
plugin-sources:
	@echo $(PLUGIN) $(KERNELS)
cuda-where:
	@[ -z "$(CUDA_MISSING)" ] && echo '$(CUDA_FLAGS)'
cuda:
	@[ -z "$(CUDA_MISSING)" ] || { \
	  echo "missing for CUDA: $(call CUDA_LACKS,$(CUDA_MISSING))"; \
	  echo "CUDA_HOME says where CUDA's toolkit is (13 or newer), NCCL_HOME where NCCL is; \`make deps-cuda\` installs g++."; \
	  echo "Without a toolkit, in a Python environment that is active:"; \
	  echo "  pip install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cublas nvidia-nccl-cu13"; exit 1; }
	@$(MAKE) --no-print-directory $(BUILD)/shardrt $(BUILD)/shardrt-cuda.so

# The plug-in against the stand-in of CUDA's runtime and libraries (tests/standin): for the specs, where there is no GPU.
STANDIN = $(BUILD)/standin
STANDIN_FLAGS = -D_GNU_SOURCE -Itests/standin/include -Iruntime -Itests $(OPTIMIZE) -g -fPIC -pthread -Wall -Wextra \
                $(ERRORS) -fno-omit-frame-pointer -ffp-contract=off $(if $(SANITIZE),-fsanitize=$(SANITIZE))
STANDIN_SOURCES := $(filter-out $(if $(wildcard tests/standin/include/nccl.h),,%/nccl.c) \
                     $(if $(wildcard tests/standin/include/cublas_v2.h),,%/cublas.c),$(PLUGIN))
STANDIN_PLUGIN := $(STANDIN_SOURCES:runtime/%=$(STANDIN)/plugin/%.o) $(KERNELS:runtime/%=$(STANDIN)/plugin/%.o)
STANDIN_LIBRARIES := $(if $(wildcard tests/standin/nccl.c*),$(STANDIN)/libnccl.so.2) \
                     $(if $(wildcard tests/standin/cublas.c*),$(STANDIN)/libcublas.so.13)
standin: $(STANDIN)/shardrt-cuda.so $(STANDIN_LIBRARIES)
$(STANDIN)/plugin/%.c.o: runtime/%.c Makefile
	@mkdir -p $(@D)
	$(call quiet,cc   )$(CC) -std=c11 $(STANDIN_FLAGS) -MMD -MP -c -o $@ $<
# Addresses that are not aligned to their types, which end a kernel on a GPU, end the specs; so does what C++ leaves
# undefined, which GPUs do otherwise.
STANDIN_CHECKS = -fsanitize=alignment,shift,signed-integer-overflow,float-cast-overflow,integer-divide-by-zero,bounds \
                 -fno-sanitize-recover=all
$(STANDIN)/plugin/%.cu.o: runtime/%.cu Makefile
	@mkdir -p $(@D)
	$(call quiet,c++  )g++ -std=c++17 $(STANDIN_FLAGS) $(STANDIN_CHECKS) -MMD -MP -x c++ -c -o $@ $<
$(STANDIN)/%.c.o: tests/standin/%.c Makefile
	@mkdir -p $(@D)
	$(call quiet,cc   )$(CC) -std=c11 $(STANDIN_FLAGS) -MMD -MP -c -o $@ $<
$(STANDIN)/%.cc.o: tests/standin/%.cc Makefile
	@mkdir -p $(@D)
	$(call quiet,c++  )g++ -std=c++17 $(STANDIN_FLAGS) -MMD -MP -c -o $@ $<
$(STANDIN)/cublas.cc.o: OPTIMIZE = -O3 # recipes that train spend much of their time in its loops
# Each finds the others beside it; whoever was there stays, as its handler of signals does.
STANDIN_LINK = g++ -shared -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(STANDIN_CHECKS) \
               -Wl,-z,nodelete '-Wl,-rpath,$$ORIGIN' -Wl,-soname,$(@F) -o $@ $(filter-out %.map,$^) $(patsubst %,-Wl$(comma)--version-script=%,$(filter %.map,$^))
$(STANDIN)/libstandin.so: $(STANDIN)/cudart.cc.o $(STANDIN)/launch.cc.o
	$(call quiet,link )$(STANDIN_LINK)
$(STANDIN)/shardrt-cuda.so: $(STANDIN_PLUGIN) $(STANDIN)/libstandin.so $(EXPORTS)
	$(call quiet,link )$(STANDIN_LINK)
$(STANDIN)/libnccl.so.2: $(patsubst tests/standin/%,$(STANDIN)/%.o,$(wildcard tests/standin/nccl.c*)) $(STANDIN)/libstandin.so
	$(call quiet,link )$(STANDIN_LINK)
$(STANDIN)/libcublas.so.13: $(patsubst tests/standin/%,$(STANDIN)/%.o,$(wildcard tests/standin/cublas.c*)) $(STANDIN)/libstandin.so
	$(call quiet,link )$(STANDIN_LINK)
-include $(STANDIN_PLUGIN:.o=.d) $(wildcard $(STANDIN)/*.d)

# Lua files become objects that `require` finds in the program itself (LuaJIT looks for luaJIT_BC_ symbols).
lua_module = $(patsubst %.init,%,$(subst /,.,$(patsubst lua/%.lua,%,$(1))))
$(BUILD)/lua/%.o: lua/%.lua | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,lua  )luajit -b -g -n $(call lua_module,$<) $< $@

# The FFI's declarations are the public header itself.
$(BUILD)/lua/shardrt/cdef.lua: runtime/shardrt.h | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,cdef ){ echo 'return [==['; $(CC) -E -P -DSHARDRT_CDEF $<; echo ']==]'; } > $@
$(BUILD)/lua/shardrt/cdef.o: $(BUILD)/lua/shardrt/cdef.lua
	$(call quiet,lua  )luajit -b -n shardrt.cdef $< $@

# Names what is missing with the package that holds it, before the compiler fails on it.
$(BUILD)/found:
	@mkdir -p $(BUILD); missing=; \
	tool() { command -v $$1 >/dev/null || { echo "missing: the program $$1, from Debian's package $$2"; missing=1; }; }; \
	header() { pkg-config --exists $$1 2>/dev/null || { echo "missing: $$2, from Debian's package $$3"; missing=1; }; }; \
	tool $(CC) gcc; tool pkg-config pkgconf; tool luajit luajit; tool mpirun openmpi-bin; \
	header ompi-c mpi.h libopenmpi-dev; header luajit luajit.h libluajit-5.1-dev; \
	header libxxhash xxhash.h libxxhash-dev; header zlib zlib.h zlib1g-dev; header libisal isa-l/crc.h libisal-dev; \
	header libjpeg jpeglib.h libjpeg62-turbo-dev; header spng spng.h libspng-dev; \
	header liburing liburing.h liburing-dev; header libbrotlidec brotli/decode.h libbrotli-dev; \
	header libzstd zstd.h libzstd-dev; header snappy snappy-c.h libsnappy-dev; \
	header blosc blosc.h libblosc-dev; header hdf5-serial hdf5.h libhdf5-dev; \
	header libcurl curl/curl.h libcurl4-openssl-dev; header libcrypto openssl/evp.h libssl-dev; \
	echo '#include <highwayhash/c_bindings.h>' | $(CC) -E -o /dev/null - 2>/dev/null || \
	  { echo "missing: highwayhash/c_bindings.h, from Debian's package libhighwayhash-dev"; missing=1; }; \
	echo '#include <Random123/philox.h>' | $(CC) -E -o /dev/null - 2>/dev/null || \
	  { echo "missing: Random123/philox.h, from Debian's package librandom123-dev"; missing=1; }; \
	if [ -n "$$missing" ]; then echo "\`make deps\` installs them"; exit 1; fi; touch $@

SUDO = $(if $(filter 0,$(shell id -u)),,sudo)
define install_packages
@missing=; for package in $(1); do \
  dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; done; \
if [ -n "$$missing" ]; then \
  command -v apt-get >/dev/null || { echo "needs Debian's packages$$missing; this system has no apt-get"; exit 1; }; \
  echo "installing$$missing"; \
  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; fi
endef
deps:
	$(call install_packages,$(PACKAGES_BUILD) $(PACKAGES_TEST))
deps-cuda:
	$(call install_packages,$(PACKAGES_CUDA))
deps-lint: deps
	$(call install_packages,$(PACKAGES_LINT))

demo: deps
	@$(MAKE) --no-print-directory all
	mpirun -n 4 $(BUILD)/shardrt --devices 2 recipes/data_parallel.lua

test: deps
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory specs

SPECS ?= $(sort $(wildcard tests/*_spec.lua))
specs: $(BUILD)/shardrt $(BUILD)/fuzz/replay standin
	@SHARDRT=$(abspath $(BUILD)/shardrt) $(BUILD)/shardrt tests/run.lua $(SPECS)

# What takes longer than `make test` may: many more random kills.
soak: deps
	@$(MAKE) --no-print-directory all
	SHARDRT=$(abspath $(BUILD)/shardrt) SHARDRT_KILLS=$(KILLS) $(BUILD)/shardrt --devices 8 test tests/fault_spec.lua
KILLS ?= 120

# The same specs with every access (asan) or every race between threads (tsan) watched; suppressed are OpenMPI's and
# LuaJIT's own internals only.
asan tsan: deps
	@$(MAKE) --no-print-directory BUILD=build-$@ SANITIZE=$(SANITIZE_$@) OPTIMIZE=-O1 all
	@$(MAKE) --no-print-directory BUILD=build-$@ SANITIZE=$(SANITIZE_$@) OPTIMIZE=-O1 SHARDRT_SANITIZER=$@ \
	  SHARDRT_TEST_LIMIT=$(or $(SHARDRT_TEST_LIMIT),1800) specs
SANITIZE_asan = address,undefined
SANITIZE_tsan = thread
export ASAN_OPTIONS  = detect_leaks=1:abort_on_error=0:allocator_may_return_null=1
export LSAN_OPTIONS  = suppressions=$(CURDIR)/tests/support/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS = halt_on_error=1:print_stacktrace=1
# Code that is not instrumented (OpenMPI, LuaJIT) synchronises by atomics that the sanitizer does not see.
export TSAN_OPTIONS  = ignore_noninstrumented_modules=1:halt_on_error=1:allocator_may_return_null=1

# The readers against bad input: tests/fuzz/fuzz.h. `replay` gives files to a target; libFuzzer makes up its own, from
# those in tests/fuzz/corpus on, and leaves what fails in build-fuzz/failed.
FUZZ_SECONDS ?= 60
FUZZ ?= $(shell sed -n 's/^ *X(\([a-z_]*\)).*/\1/p' tests/fuzz/fuzz.h)
FUZZ_OBJECTS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%.o,$(sort $(wildcard tests/fuzz/*.c)))
READERS := $(filter-out $(BUILD)/main.o $(BUILD)/compute/%,$(OBJECTS))
$(FUZZ_OBJECTS): $(BUILD)/fuzz/%.o: tests/fuzz/%.c Makefile | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,cc   )$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<
-include $(FUZZ_OBJECTS:.o=.d)
$(BUILD)/fuzz/replay: $(FUZZ_OBJECTS) $(READERS)
	$(call quiet,link )$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/fuzz/libfuzzer: $(filter-out %/replay.o,$(FUZZ_OBJECTS)) $(READERS)
	$(call quiet,link )$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

fuzz: deps
	$(call install_packages,$(PACKAGES_FUZZ))
	@$(MAKE) --no-print-directory BUILD=build-fuzz CC=clang OPTIMIZE=-O1 WARNINGS= SANITIZE=fuzzer-no-link,address,undefined \
	  build-fuzz/fuzz/libfuzzer
	@bad=; for target in $(FUZZ); do \
	  echo "  fuzz   $$target"; mkdir -p build-fuzz/failed/$$target build-fuzz/corpus/$$target; \
	  SHARDRT_FUZZ=$$target build-fuzz/fuzz/libfuzzer -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=4096 \
	    -malloc_limit_mb=4096 -print_final_stats=1 -verbosity=0 -artifact_prefix=build-fuzz/failed/$$target/ \
	    build-fuzz/corpus/$$target tests/fuzz/corpus/$$target || bad="$$bad $$target"; done; \
	  [ -z "$$bad" ] || { echo "failed:$$bad; the inputs lie in build-fuzz/failed"; exit 1; }

lint: deps-lint
	@$(MAKE) --no-print-directory BUILD=build-lint WERROR=1 build-lint/shardrt build-lint/fuzz/replay standin
	@$(MAKE) --no-print-directory $(BUILD)/lua/shardrt/cdef.lua
	@clang-format --dry-run -Werror $(SOURCES) $(PLUGIN) $(KERNELS) $(HEADERS) $(sort $(shell find runtime -name '*.cuh')) \
	  $(wildcard tests/bench/*.c tests/fuzz/*.[ch] tests/standin/*.* tests/standin/include/*)
	@printf '%s\n' $(SOURCES) | xargs -P 2 -n 4 sh -c 'clang-tidy --quiet "$$@" -- -std=c11 -D_GNU_SOURCE -Iruntime \
	  $(MPI_CFLAGS) $(LUA_CFLAGS) $(HDF5_CFLAGS) 2>&1 | { ! grep -v "warnings\? generated"; }' tidy
	@printf '%s\n' $(PLUGIN) | xargs -P 2 -n 4 sh -c 'clang-tidy --quiet "$$@" -- -std=c11 -D_GNU_SOURCE -Iruntime -Itests \
	  -Itests/standin/include 2>&1 | { ! grep -v "warnings\? generated"; }' tidy
	luacheck -q lua recipes tests

# Speed, as ratios taken in one run; the C programs beside it are the baselines. PEERS=1: then other loaders, too, on the
# same files in the same run; PARTS="loader cold transforms formats start reshard compute gpu peers" chooses. With
# JAX_PYTHON naming a Python that has JAX, as build/peers/bin/python does, reshards and computations are compared with
# JAX's. What needs a GPU is left out where there is none, and said.
BASELINES = $(addprefix $(BUILD)/bench/,gather gather-scalar pread meet copy alltoall jpeg gemm \
                                        $(if $(CUDA_MISSING),,upload))
bench: deps
	@$(MAKE) --no-print-directory all $(BASELINES)
	@$(if $(PEERS),$(MAKE) --no-print-directory peers)
	@SHARDRT=$(abspath $(BUILD)/shardrt) $(BUILD)/shardrt tests/bench/run.lua $(BUILD) \
	  $(or $(PARTS),loader cold transforms formats start reshard compute gpu $(if $(PEERS),peers))
# The other loaders, in a Python environment that is kept; without what FFCV is built from, or what SPDL loads, these are
# left out.
peers:
	$(call install_packages,$(PACKAGES_PEERS))
	-@$(MAKE) --no-print-directory deps-ffcv
	-@$(MAKE) --no-print-directory deps-spdl
	@/usr/bin/python3 -B tests/bench/peers/install.py $(BUILD)/peers
deps-ffcv:
	$(call install_packages,$(PACKAGES_FFCV))
deps-spdl:
	$(call install_packages,$(PACKAGES_SPDL))
$(BUILD)/bench/gather-scalar: tests/bench/gather.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -fno-tree-vectorize -pthread -o $@ $<
$(BUILD)/bench/upload: tests/bench/upload.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -Wall -Wextra $(ERRORS) -isystem $(CUDA_TOOLKIT)/include -pthread -o $@ $< -L$(CUDA_LIBRARIES) \
	  -lcudart_static -lrt -ldl
$(BUILD)/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O3 -march=native -pthread $(MPI_CFLAGS) -o $@ $< $(shell pkg-config --libs ompi-c libjpeg)

# What was built, as it is: whoever installs, often root, may have another toolkit or none.
install: $(BUILD)/shardrt $(if $(CUDA_MISSING)$(wildcard $(BUILD)/shardrt-cuda.so),,$(BUILD)/shardrt-cuda.so)
	@[ ! -e $(BUILD)/shardrt-cuda.so ] || [ -z "$$(find $(PLUGIN) $(KERNELS) -newer $(BUILD)/shardrt-cuda.so)" ] || { \
	  echo "$(BUILD)/shardrt-cuda.so is older than what it is made of: \`make cuda\` makes it anew"; exit 1; }
	install -D -m 755 $(BUILD)/shardrt $(DESTDIR)$(PREFIX)/bin/shardrt
	[ ! -e $(BUILD)/shardrt-cuda.so ] || \
	  install -D -m 755 $(BUILD)/shardrt-cuda.so $(DESTDIR)$(PREFIX)/lib/shardrt/shardrt-cuda.so
	install -D -m 644 runtime/shardrt.h $(DESTDIR)$(PREFIX)/include/shardrt.h
	install -D -m 644 runtime/shardrt.1 $(DESTDIR)$(PREFIX)/share/man/man1/shardrt.1

clean:
	rm -rf $(BUILD) $(if $(filter build,$(BUILD)),build-asan build-tsan build-fuzz build-lint)
