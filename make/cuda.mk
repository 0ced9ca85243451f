# The plug-in for GPUs: $(BUILD)/shardrt-cuda.so, a library of its own, which the program opens when it is asked for. It is
# made of every *.cu and of the C files that say "// build: plug-in".

PLUGIN  := $(sort $(shell grep -rlx --include='*.c' '// build: plug-in' runtime))
KERNELS := $(sort $(shell find runtime -name '*.cu'))

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
# The user's: nvcc itself takes only the preprocessor's; what else there is goes to the host's compiler.
NVCC_TAKES = -D% -U% -I%
NVCC_USERS = $(filter $(NVCC_TAKES),$(CPPFLAGS)) $(addprefix -Xcompiler ,$(filter-out $(NVCC_TAKES),$(CPPFLAGS)) $(CXXFLAGS))
# Kernels have no asserts and take minutes: other builds share them.
CUDA_KERNELS ?= $(BUILD)/cuda
CUDA_OBJECTS := $(PLUGIN:runtime/%=$(BUILD)/cuda/%.o) $(KERNELS:runtime/%=$(CUDA_KERNELS)/%.o)
CUDA_SAYS = $(if $(CUDA_MISSING),cuda: no $(call CUDA_LACKS,$(firstword $(CUDA_MISSING)) found)$(comma) built for the host only, \
              cuda: $(CUDA_TOOLKIT)$(if $(CUDA_ELSEWHERE), with NCCL in $(CUDA_ELSEWHERE))$(comma) for $(addprefix sm_,$(ARCHS)))
comma := ,
space := $() #

# What is built, said when it is another thing than the last time.
$(CUDA_KERNELS)/said: FORCE
	@mkdir -p $(@D); [ "$$(cat $@ 2>/dev/null)" = "$(strip $(CUDA_SAYS))" ] || { echo "$(strip $(CUDA_SAYS))" | tee $@; }
FORCE:
$(BUILD)/shardrt: | $(if $(SANITIZE)$(filter install,$(MAKECMDGOALS)),,$(CUDA_KERNELS)/said)
$(CUDA_OBJECTS): $(CUDA_KERNELS)/said $(RULES) make/cuda.mk
$(BUILD)/cuda/%.c.o: runtime/%.c
	@mkdir -p $(@D)
	$(call quiet,cc   )$(call compile,-fPIC $(CUDA_FLAGS) -DCUDA_LEAST=$(firstword $(ARCHS)) \
	  -DCUDA_LIBRARIES='"$(CUDA_FOLDERS)"')
$(CUDA_KERNELS)/%.cu.o: runtime/%.cu
	@mkdir -p $(@D)
	$(call quiet,nvcc )$(CUDA_TOOLKIT)/bin/nvcc $(NVCC_FLAGS) $(CUDA_FLAGS) $(NVCC_USERS) -MMD -MP -c -o $@ $<
EXPORTS := $(shell find runtime -name exports.map)
$(BUILD)/shardrt-cuda.so: $(CUDA_OBJECTS) $(EXPORTS)
	$(call quiet,link )$(CC) -shared -pthread -Wl,--version-script=$(EXPORTS) $(LDFLAGS) -o $@ \
	  $(CUDA_OBJECTS) -L$(CUDA_LIBRARIES) -lcudart_static -lstdc++ -lrt -ldl
-include $(CUDA_OBJECTS:.o=.d)

.PHONY: cuda cuda-where plugin-sources FORCE
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
