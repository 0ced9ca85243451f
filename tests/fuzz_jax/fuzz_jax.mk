# Random programs of np's words beside JAX: PROGRAMS= of them, from SEED= (the time) on, which a Python that has JAX,
# JAX_PYTHON=, runs first. `make test` compares those in tests/fuzz_jax/programs.jsonl, whose answers are stored. Most of
# the time JAX compiles, so it keeps what it compiled: later runs take a third of the time.

PROGRAMS ?= 3000
FUZZED_JAX = $(abspath $(TESTED))/fuzz-jax
.PHONY: fuzz-jax
fuzz-jax: deps
	@[ -n "$(JAX_PYTHON)" ] || { echo "make fuzz-jax: say JAX_PYTHON=path/to/python, of one with jax==0.10.2 from pip"; exit 1; }
	@mkdir -p $(FUZZED_JAX)
	@seed=$(or $(SEED),$$(date +%s)); echo "  jax    $(PROGRAMS) programs, SEED=$$seed"; \
	  JAX_PLATFORMS=cpu JAX_COMPILATION_CACHE_DIR=$(FUZZED_JAX)/compiled JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
	  JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1 $(JAX_PYTHON) -B tests/fuzz_jax/generate.py --programs $(PROGRAMS) --seed $$seed > $(FUZZED_JAX)/part
	@mv $(FUZZED_JAX)/part $(FUZZED_JAX)/programs.jsonl
	@SHARDRT_FUZZ_JAX=$(FUZZED_JAX)/programs.jsonl SHARDRT_TEST_LIMIT=$(or $(SHARDRT_TEST_LIMIT),7200) \
	  $(MAKE) $(CHECKED) specs SPECS=tests/fuzz_jax/fuzz_jax_spec.lua
