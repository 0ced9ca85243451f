# The plug-ins for MPI: nothing else of shardrt needs an MPI's library. One for each MPI whose mpi.h is found, made of the
# C files that say "// build: MPI plug-in"; the program opens the one that it is to use (runtime/comm/transport/mpi_choice.h).
#
#   shardrt-openmpi.so   OpenMPI 3 to 5: libmpi.so.40
#   shardrt-mpich.so     MPICH, and what has its binary interface, as Intel's and, by its module cray-mpich-abi, Cray's: libmpi.so.12
#   shardrt-libmpich.so  the same, by the name that Debian gives the library: libmpich.so.12

MPI_SOURCES := $(sort $(shell grep -rlx --include='*.c' '// build: MPI plug-in' runtime))

# Where an MPI is, as pkg-config says ($(1)), or a compiler of its own ($(2)), the first of whose mpi.h says $(3).
find_mpi = $(shell for flags in "`pkg-config --cflags --libs $(1) 2>/dev/null`" $(foreach cc,$(2),"`$(cc) -show 2>/dev/null`"); do \
  flags=`printf '%s\n' $$flags | grep '^-[IL]'`; [ -n "$$flags" ] || continue; \
  ! $(CC) $$flags -E -dM -include mpi.h -x c /dev/null 2>/dev/null | grep -q '^.define $(3) ' || { echo $$flags; break; }; done)
# MPI=mpich or MPI=openmpi: that one only. MPICC=/opt/mpi/bin/mpicc: the one that this compiler is for.
ifneq ($(filter-out mpich openmpi,$(MPI)),)
  $(error MPI is "$(MPI)"; it is "mpich" or "openmpi", and MPICC the path of an mpicc)
endif
MPIRUN = $(or $(if $(MPI),$(shell command -v mpirun.$(MPI))),$(wildcard $(patsubst %/mpicc,%/mpirun,$(MPICC))),mpirun)
ifndef OPENMPI_FLAGS
  OPENMPI_FLAGS := $(if $(filter mpich,$(MPI)),,$(call find_mpi,$(if $(MPICC),,ompi-c),$(or $(MPICC),mpicc mpicc.openmpi),OPEN_MPI))
endif
ifndef MPICH_FLAGS
  MPICH_FLAGS := $(if $(filter openmpi,$(MPI)),,$(call find_mpi,$(if $(MPICC),,mpich),$(or $(MPICC),mpicc mpicc.mpich),MPICH_VERSION))
endif

OPENMPI_PLUGINS := $(if $(OPENMPI_FLAGS),$(BUILD)/shardrt-openmpi.so)
MPICH_PLUGINS := $(if $(MPICH_FLAGS),$(BUILD)/shardrt-mpich.so $(BUILD)/shardrt-libmpich.so)
# Without an MPI no text at all: $(if) takes a space for some.
MPI_PLUGINS := $(strip $(OPENMPI_PLUGINS) $(MPICH_PLUGINS))
mpi_objects = $(addprefix $(BUILD)/mpi/$(1)/comm/transport/,mpi.o mpi_joining.o $(1).o) $(BUILD)/mpi/$(1)/platform/opener.o \
              $(addprefix $(BUILD)/,comm/transport/lone_process.o comm/transport/launcher.o base/number_text.o)
# An MPI that lies where the system does not look is found where its headers were.
mpi_rpath = $(patsubst -L%,-Wl$(comma)-rpath$(comma)%,$(filter-out -L/usr/lib -L/usr/lib64 -L/usr/lib/%,$(filter -L%,$(1))))

$(BUILD)/mpi/openmpi/%.o: runtime/%.c $(RULES) make/mpi.mk | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,cc   )$(call compile,$(filter -I%,$(OPENMPI_FLAGS)))
$(BUILD)/mpi/mpich/%.o: runtime/%.c $(RULES) make/mpi.mk | $(BUILD)/found
	@mkdir -p $(@D)
	$(call quiet,cc   )$(call compile,$(filter -I%,$(MPICH_FLAGS)) -Wno-stringop-overflow)
# (Its MPI_STATUSES_IGNORE is an address, 1, which GCC takes for an array that is too small.) Of the library itself only the
# name is needed.
$(BUILD)/mpi/libmpi.so.40 $(BUILD)/mpi/libmpi.so.12 $(BUILD)/mpi/libmpich.so.12: make/mpi.mk
	@mkdir -p $(@D)
	$(call quiet,link )$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared -nostdlib -Wl,-soname,$(@F) -o $@ -x c /dev/null
mpi_link = $(CC) -shared $(LD_FLAGS) -Wl,--version-script=$(EXPORTS) -Wl,--no-as-needed $(call mpi_rpath,$(1)) $(LDFLAGS) \
           -o $@ $(filter %.o,$^) $(filter $(BUILD)/mpi/lib%,$^)
$(BUILD)/shardrt-openmpi.so: $(call mpi_objects,openmpi) $(BUILD)/mpi/libmpi.so.40 $(EXPORTS)
	$(call quiet,link )$(call mpi_link,$(OPENMPI_FLAGS))
$(BUILD)/shardrt-mpich.so: $(call mpi_objects,mpich) $(BUILD)/mpi/libmpi.so.12 $(EXPORTS)
	$(call quiet,link )$(call mpi_link,$(MPICH_FLAGS))
$(BUILD)/shardrt-libmpich.so: $(call mpi_objects,mpich) $(BUILD)/mpi/libmpich.so.12 $(EXPORTS)
	$(call quiet,link )$(call mpi_link,$(MPICH_FLAGS))
-include $(patsubst %.o,%.d,$(filter $(BUILD)/mpi/%,$(call mpi_objects,openmpi) $(call mpi_objects,mpich)))
# Both are opened by what is built beside them.
$(BUILD)/shardrt: | $(MPI_PLUGINS)
library: $(MPI_PLUGINS)
