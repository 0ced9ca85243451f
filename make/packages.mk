# What the project needs from Debian: the one table. A row says who needs the package, its name, how `make` looks for it, and
# the program or header whose absence it reports; behind it stands what the package is for. `make` looks for a program, or asks
# pkg-config for a name, or tries to include a header (-lNAME: with a library that pkg-config does not know), or looks for an
# MPI, whichever it is; "-": it does not.
NEEDS += build:gcc:program:$(firstword $(CC))                         # the compiler
NEEDS += build:libc6-dev:-                                            # the C library
NEEDS += build:pkgconf:program:pkg-config                             # where the other libraries are
NEEDS += build:openmpi-bin:program:mpirun                             # starts the processes of a job
NEEDS += build:luajit:program:luajit                                  # compiles the Lua files
NEEDS += build:libopenmpi-dev:mpi:mpi.h                               # messages between processes
NEEDS += build:libluajit-5.1-dev:luajit:luajit.h                      # runs recipes
NEEDS += build:zlib1g-dev:zlib:zlib.h                                 # gzip, zip and PNG
NEEDS += build:libisal-dev:libisal:isa-l/crc.h                        # CRC-32C, and inflate where all of a file is read
NEEDS += build:libjpeg62-turbo-dev:libjpeg:jpeglib.h                  # JPEG
NEEDS += build:libspng-dev:spng:spng.h                                # PNG
NEEDS += build:liburing-dev:liburing:liburing.h                       # many reads at once
NEEDS += build:libbrotli-dev:libbrotlidec:brotli/decode.h             # compressed chunks of Riegeli
NEEDS += build:libzstd-dev:libzstd:zstd.h                             # compressed files and chunks
NEEDS += build:libsnappy-dev:snappy:snappy-c.h                        # compressed chunks of Riegeli
NEEDS += build:libxxhash-dev:libxxhash:xxhash.h                       # fingerprints, and checksums of MDS
NEEDS += build:libblosc-dev:blosc:blosc.h                             # compressed chunks of Zarr
NEEDS += build:libhdf5-dev:hdf5-serial:hdf5.h                         # HDF5
NEEDS += build:libcurl4-openssl-dev:libcurl:curl/curl.h               # files on HTTP servers
NEEDS += build:libssl-dev:libcrypto:openssl/evp.h                     # checksums of MDS
NEEDS += build:libhighwayhash-dev:-lhighwayhash:highwayhash/c_bindings.h # checksums of Riegeli
NEEDS += build:librandom123-dev:header:Random123/philox.h             # random numbers by position
NEEDS += build:libopenblas0-pthread:-                                 # products of matrices; opened when first needed
NEEDS += test+cuda+ffcv:g++:-                                         # kernels on the stand-in; CUDA's compiler; FFCV
NEEDS += test+wheel:libmpich-dev:-                                    # another MPI, beside the default one
NEEDS += test:lua-busted:-                                            # runs specs
NEEDS += test:lua-cjson:-                                             # reads JSON in specs
NEEDS += test:dataset-fashion-mnist:-                                 # real data, for the demo, too
NEEDS += test:iproute2:-                                              # hosts of a network that one machine plays
NEEDS += test:nginx-light:-                                           # an HTTP server
NEEDS += test:openssl:-                                               # its certificates
NEEDS += test:locales:-                                               # a language that writes 1,5
NEEDS += test:valgrind:-                                              # programs that use the library, looked at as they run
NEEDS += test:python3:-                                               # writes files in other projects' formats
NEEDS += test:python3-numpy:-                                         # arrays that the Python package hands out
NEEDS += slurm:slurmctld:-                                            # a cluster on this machine, for its spec
NEEDS += slurm:slurmd:-                                               # its nodes
NEEDS += slurm:slurm-client:-                                         # srun, sbatch, scontrol
NEEDS += slurm:munge:-                                                # how its daemons trust each other
NEEDS += slurm:libpmix2:-                                             # srun --mpi=pmix
NEEDS += report:chromium:-                                            # shows pages of reports, for their spec: 0.4 GB
NEEDS += report:python3-prometheus-client:-                           # reads files of metrics, for their spec
# `make lint` wants those of Debian 12: other versions of clang-format lay the code out otherwise.
NEEDS += lint:clang-format:-                                          # layout of C
NEEDS += lint:clang-tidy:-                                            # static analysis of C
NEEDS += lint:lua-check:-                                             # static analysis of Lua
NEEDS += fuzz:clang:-                                                 # libFuzzer is clang's
NEEDS += fuzz:libclang-rt-dev:-                                       # libFuzzer and the sanitizers
NEEDS += python:python3-torch:-                                       # PyTorch, for its specs: 0.5 GB with what it needs
NEEDS += peers+wheel+python:python3-venv:-                            # other loaders, and what makes wheels, apart from all else
NEEDS += wheel:libopenmpi-dev:-                                       # a wheel serves both MPIs
NEEDS += ffcv:python3-dev:-                                           # builds FFCV
NEEDS += ffcv:libopencv-dev:-                                         # builds FFCV
NEEDS += ffcv:libturbojpeg0-dev:-                                     # builds FFCV
NEEDS += spdl:libavdevice59:-                                         # SPDL loads it

# The column of this number in the rows for one who needs.
column = $(foreach row,$(NEEDS),$(if $(filter $(2),$(subst +, ,$(firstword $(subst :, ,$(row))))),$(word $(1),$(subst :, ,$(row)))))

LOOKED_FOR := $(call column,3,build)
PKG_CONFIG := $(filter-out - program header mpi -l%,$(LOOKED_FOR))
# `make deps` works before pkg-config is there; $(BUILD)/found reports what is missing.
INCLUDES := $(strip $(shell pkg-config --cflags $(PKG_CONFIG) 2>/dev/null))
LIBS = $(shell pkg-config --libs $(PKG_CONFIG)) $(filter -l%,$(LOOKED_FOR)) -lm -ldl

# Names what is missing with the package that holds it, before the compiler fails on it.
$(BUILD)/found: make/packages.mk
	@mkdir -p $(@D); missing=; for row in $(filter build:%,$(NEEDS)); do IFS=:; set -- $$row; unset IFS; \
	  case $$3 in \
	    -) ;; \
	    mpi) [ -n "$(OPENMPI_FLAGS)$(MPICH_FLAGS)" ] ;; \
	    program) command -v "$$4" >/dev/null ;; \
	    header | -l*) echo "#include <$$4>" | $(CC) $(CPPFLAGS) $(CFLAGS) -E -o /dev/null - 2>/dev/null ;; \
	    *) pkg-config --exists "$$3" 2>/dev/null ;; \
	  esac || { echo "missing: $$4, from Debian's package $$2"; missing=1; }; \
	done; if [ -n "$$missing" ]; then echo "\`make deps\` installs them"; exit 1; fi; touch $@

SUDO = $(if $(filter 0,$(shell id -u)),,sudo)
define install_for
@missing=; for package in $(sort $(foreach who,$(1),$(call column,2,$(who)))); do \
  dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; done; \
if [ -n "$$missing" ]; then \
  command -v apt-get >/dev/null || { echo "needs Debian's packages$$missing; this system has no apt-get"; exit 1; }; \
  echo "installing$$missing"; \
  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; fi
endef

.PHONY: deps deps-cuda deps-ffcv deps-spdl deps-lint deps-wheel
deps:
	$(call install_for,build test)
deps-cuda deps-ffcv deps-spdl:
	$(call install_for,$(@:deps-%=%))
deps-wheel:
	$(call install_for,build wheel)
deps-lint: deps
	$(call install_for,lint)
