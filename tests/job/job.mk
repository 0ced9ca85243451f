# Programs that shardrt is a part of: C files beside the specs that run them, linked with all of it but its command.

JOB_PROGRAMS := $(patsubst tests/job/%.c,$(BUILD)/job/%,$(sort $(wildcard tests/job/*.c)))
$(JOB_PROGRAMS:=.o): $(BUILD)/job/%.o: tests/job/%.c $(RULES) tests/job/job.mk | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,cc   )$(call compile,$(filter -I%,$(OPENMPI_FLAGS)))
-include $(JOB_PROGRAMS:=.d)
$(JOB_PROGRAMS): $(BUILD)/job/%: $(BUILD)/job/%.o $(LIBRARY_OBJECTS) $(if $(SANITIZE),tests/support/dlclose.c) | $(BUILD)/job/shardrt
	$(call quiet,link )$(link)
# One has MPI of its own; all look for the plug-ins beside themselves, or in a folder there.
$(BUILD)/job/callers_mpi: LIBS += $(OPENMPI_FLAGS) -lmpi
$(BUILD)/job/shardrt: $(MPI_PLUGINS)
	@mkdir -p $@
	ln -sf $(addprefix ../../,$(notdir $(MPI_PLUGINS))) $@
