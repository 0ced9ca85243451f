# The plug-in against the stand-in of CUDA's runtime and libraries (tests/standin): for the specs, where there is no GPU.
# Its asserts are always on.

STANDIN = $(BUILD)/standin
STANDIN_RULES := $(RULES) make/cuda.mk tests/standin/standin.mk
STANDIN_FLAGS = -D_GNU_SOURCE -Itests/standin/include -Iruntime -Itests $(OPTIMIZE) -g -fPIC -pthread -Wall -Wextra \
                $(ERRORS) -fno-omit-frame-pointer -ffp-contract=off $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -MMD -MP
STANDIN_PLUGIN := $(PLUGIN:runtime/%=$(STANDIN)/plugin/%.o) $(KERNELS:runtime/%=$(STANDIN)/plugin/%.o)
.PHONY: standin
standin: $(STANDIN)/shardrt-cuda.so $(STANDIN)/libnccl.so.2 $(STANDIN)/libcublas.so.13
$(STANDIN)/plugin/%.c.o: runtime/%.c $(STANDIN_RULES)
	@mkdir -p $(@D)
	$(call quiet,cc   )$(CC) -std=c11 $(STANDIN_FLAGS) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
# Addresses that are not aligned to their types, which end a kernel on a GPU, end the specs; so does what C++ leaves
# undefined, which GPUs do otherwise.
STANDIN_CHECKS = -fsanitize=alignment,shift,signed-integer-overflow,float-cast-overflow,integer-divide-by-zero,bounds \
                 -fno-sanitize-recover=all
$(STANDIN)/plugin/%.cu.o: runtime/%.cu $(STANDIN_RULES)
	@mkdir -p $(@D)
	$(call quiet,c++  )g++ -std=c++17 $(STANDIN_FLAGS) $(STANDIN_CHECKS) $(CPPFLAGS) $(CXXFLAGS) -x c++ -c -o $@ $<
$(STANDIN)/%.cc.o: tests/standin/%.cc $(STANDIN_RULES)
	@mkdir -p $(@D)
	$(call quiet,c++  )g++ -std=c++17 $(STANDIN_FLAGS) $(asked_flags) $(CPPFLAGS) $(CXXFLAGS) -c -o $@ $<
# Each finds the others beside it; whoever was there stays, as its handler of signals does.
STANDIN_LINK = g++ -shared -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(STANDIN_CHECKS) \
               -Wl,-z,nodelete '-Wl,-rpath,$$ORIGIN' -Wl,-soname,$(@F) $(LDFLAGS) -o $@ $(filter-out %.map,$^) \
               $(patsubst %,-Wl$(comma)--version-script=%,$(filter %.map,$^))
$(STANDIN)/libstandin.so: $(STANDIN)/cudart.cc.o $(STANDIN)/launch.cc.o
	$(call quiet,link )$(STANDIN_LINK)
$(STANDIN)/shardrt-cuda.so: $(STANDIN_PLUGIN) $(STANDIN)/libstandin.so $(EXPORTS)
	$(call quiet,link )$(STANDIN_LINK)
$(STANDIN)/libnccl.so.2: $(STANDIN)/nccl.cc.o $(STANDIN)/libstandin.so
	$(call quiet,link )$(STANDIN_LINK)
$(STANDIN)/libcublas.so.13: $(STANDIN)/cublas.cc.o $(STANDIN)/libstandin.so
	$(call quiet,link )$(STANDIN_LINK)
-include $(STANDIN_PLUGIN:.o=.d) $(wildcard $(STANDIN)/*.d)
