# Speed, as ratios taken in one run; the C programs beside it are the baselines. PEERS=1: then other loaders, too, on the
# same files in the same run; PARTS="loader cold transforms formats start library others reshard compute gpu peers"
# chooses. `others`, the library beside PyTorch and Grain, `tokenize`, tokens beside tokenizers and tiktoken,
# `servers`, files on a far server beside curl, `words`, each word of np beside JAX, `collectives`, NCCL's beside
# messages, and `scale`, which counts what processes send, are run only where named. With JAX_PYTHON naming a Python
# that has JAX, as build/peers/bin/python does, reshards and computations are compared with JAX's. What needs a GPU is
# left out where there is none, and said.

BASELINES = $(addprefix $(BUILD)/bench/,gather gather-scalar pread meet copy alltoall allreduce jpeg gemm \
                                        $(if $(CUDA_MISSING),,upload))
.PHONY: bench peers few-peers
bench: deps
	@$(MAKE) --no-print-directory all $(BASELINES)
	$(if $(filter servers,$(PARTS)),$(call install_for,servers))
	@$(if $(PEERS),$(MAKE) --no-print-directory peers)
	@$(if $(filter others,$(PARTS)),$(MAKE) --no-print-directory few-peers FEW="torch grain")
	@$(if $(filter tokenize,$(PARTS)),$(MAKE) --no-print-directory few-peers FEW=tokenizers)
	@$(if $(filter formats,$(PARTS)),$(MAKE) --no-print-directory few-peers FEW="torch pyarrow datasets megatron")
	@SHARDRT=$(abspath $(BUILD)/shardrt) $(BUILD)/shardrt tests/bench/run.lua $(BUILD) \
	  $(or $(PARTS),loader cold transforms formats start library reshard compute gpu $(if $(PEERS),peers))
# What PARTS=others, PARTS=tokenize or PARTS=formats is compared with.
few-peers:
	$(call install_for,peers)
	-@/usr/bin/python3 -B tests/bench/peers/install.py $(BUILD)/peers $(FEW)
# The other loaders, in a Python environment that is kept; without what FFCV is built from, or what SPDL loads, these are
# left out.
peers:
	$(call install_for,peers)
	-@$(MAKE) --no-print-directory deps-ffcv
	-@$(MAKE) --no-print-directory deps-spdl
	@/usr/bin/python3 -B tests/bench/peers/install.py $(BUILD)/peers
# What whoever builds asks for.
bench_users = $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)
$(BUILD)/bench/gather-scalar: tests/bench/gather.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -fno-tree-vectorize -pthread $(bench_users) -o $@ $<
$(BUILD)/bench/upload: tests/bench/upload.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -O2 -Wall -Wextra $(ERRORS) -isystem $(CUDA_TOOLKIT)/include -pthread $(bench_users) -o $@ $< \
	  -L$(CUDA_LIBRARIES) -lcudart_static -lrt -ldl
$(BUILD)/bench/%: tests/bench/%.c
	@mkdir -p $(@D)
	$(CC) -std=c11 -D_GNU_SOURCE -O3 -march=native -pthread $(INCLUDES) $(bench_users) -o $@ $< \
	  $(shell pkg-config --libs libjpeg) $(OPENMPI_FLAGS) -lmpi
