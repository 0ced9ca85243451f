# Programs that shardrt is a part of: C files beside the specs that run them, linked with all of it but its command.

JOB_PROGRAMS := $(patsubst tests/job/%.c,$(BUILD)/job/%,$(sort $(wildcard tests/job/*.c)))
$(JOB_PROGRAMS:=.o): $(BUILD)/job/%.o: tests/job/%.c $(RULES) tests/job/job.mk | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,cc   )$(compile)
-include $(JOB_PROGRAMS:=.d)
$(JOB_PROGRAMS): $(BUILD)/job/%: $(BUILD)/job/%.o $(LIBRARY_OBJECTS) $(if $(SANITIZE),tests/support/dlclose.c)
	$(call quiet,link )$(link)
