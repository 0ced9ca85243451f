# Which of the libraries of make/libraries.txt there are. make/libraries.sh looks for them once, and again when packages were
# installed, or compiler and flags are others; WITHOUT leaves some out, by their keys there: `make WITHOUT="hdf5 curl"`, "all".
#
#   $(BUILD)/config.mk      when they were looked for
#   $(BUILD)/libraries.mk   what was found: INCLUDES, LIBS, MISSING, BUILT_IN, NEEDED; not touched where nothing has changed

# `make install` leaves out what the build did.
WITHOUT ?= $(if $(filter install,$(MAKECMDGOALS)),$(shell sed -n 's/.* WITHOUT\(.*\) MPI\( .*\)*$$/\1/p' $(BUILD)/config 2>/dev/null))
# These build in a make of their own, after packages were installed.
LATER = help uninstall clean lint demo test test-slurm test-report fuzz test-wheel test-python test-tarball soak asan tsan wheel tarball deps deps-% $(if $(ASSERTS)$(SANITIZE),,specs)
LOOKS = $(strip $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(PKG_CONFIG_PATH) WITHOUT $(WITHOUT) MPI $(MPI_FOUND))
INSTALLED := $(wildcard /var/lib/dpkg/status /var/lib/rpm/rpmdb.sqlite $(addsuffix /conda-meta/history,$(CONDA_PREFIX)))
MPI_FOUND = $(if $(OPENMPI_FLAGS),OpenMPI) $(if $(MPICH_FLAGS),MPICH)
ifneq ($(filter-out $(LATER),$(or $(MAKECMDGOALS),all)),)
include $(BUILD)/config.mk
endif

ifneq ($(strip $(file <$(BUILD)/config)),$(LOOKS))
$(BUILD)/config.mk: FORCE
endif
$(foreach name,CC CPPFLAGS CFLAGS LDFLAGS WITHOUT MPI_FOUND LOOKS,$(eval $$(BUILD)/config.mk: export $(name) := $$($(name))))
$(BUILD)/config.mk: make/libraries.sh make/libraries.txt make/libraries.mk $(INSTALLED)
	@mkdir -p $(@D); sh make/libraries.sh $@.new $(if $(ASSERTS)$(SANITIZE),>/dev/null)
	@cmp -s $@.new $(BUILD)/libraries.mk && rm $@.new || mv $@.new $(BUILD)/libraries.mk
	@printf '%s\n' "$$LOOKS" > $(BUILD)/config; echo 'include $(BUILD)/libraries.mk' > $@

# Sources that do without a library know which are missing; nothing else is compiled anew.
OPTIONAL := $(patsubst runtime/%.c,$(BUILD)/%.o,$(shell grep -rl --include='*.c' SHARDRT_WITHOUT_ runtime))
LIBS += $(patsubst -L%,-Wl$(comma)-rpath$(comma)%,$(filter -L%,$(LDFLAGS)))
$(OPTIONAL) $(BUILD)/base/libraries.o: $(BUILD)/libraries.mk
$(OPTIONAL): C_FLAGS += $(MISSING)
$(BUILD)/base/libraries.o: C_FLAGS += -DSHARDRT_BUILT_IN='"$(BUILT_IN)"' -DSHARDRT_MPI='"$(MPI_BUILT)"'
$(BUILD)/libraries.mk: $(BUILD)/config.mk ;

# What clang says of vectors' "a | b ? c : d", and of functions that asserts call.
WARNINGS += $(if $(findstring clang,$(CC)),-Wno-bitwise-conditional-parentheses -Wno-bitwise-instead-of-logical -Wno-unused-function)

$(BUILD)/found: $(BUILD)/libraries.mk
	@[ -z "$(NEEDED)" ] || { echo "missing:$(NEEDED); the table names their packages, \`make deps\` installs Debian's"; rm -f $(BUILD)/config.mk; exit 1; }
	@touch $@
