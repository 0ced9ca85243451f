# The readers against bad input: tests/fuzz/fuzz.h. `replay` gives files to a target; libFuzzer makes up its own, from
# those in tests/fuzz/corpus on, and leaves what fails in $(FUZZED)/failed.

FUZZED = $(BUILD)-fuzz
FUZZ_SECONDS ?= 60
FUZZ ?= $(shell sed -n 's/^ *X(\([a-z_]*\)).*/\1/p' tests/fuzz/fuzz.h)
FUZZ_OBJECTS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%.o,$(sort $(wildcard tests/fuzz/*.c tests/fuzz/targets/*.c tests/fuzz/targets/*/*.c)))
READERS := $(filter-out $(BUILD)/recipe/% $(BUILD)/compute/%,$(LIBRARY_OBJECTS))
# The target `service` answers in a server's place, and sets the clock.
FUZZ_WRAPPED = -Wl,--wrap=exchange,--wrap=exchange_patiently,--wrap=exchange_pause,--wrap=time
$(FUZZ_OBJECTS): $(BUILD)/fuzz/%.o: tests/fuzz/%.c $(RULES) tests/fuzz/fuzz.mk | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,cc   )$(compile)
-include $(FUZZ_OBJECTS:.o=.d)
$(BUILD)/fuzz/replay: $(FUZZ_OBJECTS) $(READERS)
	$(call quiet,link )$(call link,$(FUZZ_WRAPPED))
$(BUILD)/fuzz/libfuzzer: $(filter-out %/replay.o,$(FUZZ_OBJECTS)) $(READERS)
	$(call quiet,link )$(call link,-fsanitize=fuzzer $(FUZZ_WRAPPED))

.PHONY: fuzz
fuzz: deps
	$(call install_for,fuzz)
	@$(MAKE) --no-print-directory BUILD=$(FUZZED) CC=clang OPTIMIZE=-O1 WARNINGS= SANITIZE=fuzzer-no-link,address,undefined \
	  $(FUZZED)/fuzz/libfuzzer
	@bad=; for target in $(FUZZ); do \
	  echo "  fuzz   $$target"; mkdir -p $(FUZZED)/failed/$$target $(FUZZED)/corpus/$$target; \
	  LSAN_OPTIONS=suppressions=tests/support/lsan.supp:print_suppressions=0 SHARDRT_FUZZ=$$target $(FUZZED)/fuzz/libfuzzer -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=4096 \
	    -malloc_limit_mb=4096 -print_final_stats=1 -verbosity=0 -artifact_prefix=$(FUZZED)/failed/$$target/ \
	    $(FUZZED)/corpus/$$target tests/fuzz/corpus/$$target || bad="$$bad $$target"; done; \
	  [ -z "$$bad" ] || { echo "failed:$$bad; the inputs lie in $(FUZZED)/failed"; exit 1; }
