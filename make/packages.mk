# What the project needs from Debian, besides the libraries of make/libraries.txt. A row says who needs the package and its name;
# behind it stands what the package is for.
NEEDS += build:gcc                          # the compiler
NEEDS += build:libc6-dev                    # the C library
NEEDS += build:pkgconf                      # where the other libraries are
NEEDS += build:luajit                       # compiles the Lua files
NEEDS += openmpi:openmpi-bin                # starts the processes of a job
NEEDS += openmpi:libopenmpi-dev             # messages between processes
NEEDS += mpich:mpich                        # the same, for `make MPI=mpich`
NEEDS += mpich:libmpich-dev                 # and its messages
NEEDS += build:libopenblas0-pthread         # products of matrices; opened when first needed
NEEDS += test+cuda+ffcv:g++                 # kernels on the stand-in; CUDA's compiler; FFCV
NEEDS += test+wheel:libmpich-dev            # another MPI, beside the default one
NEEDS += test:lua-busted                    # runs specs
NEEDS += test:lua-cjson                     # reads JSON in specs
NEEDS += demo+test:dataset-fashion-mnist    # real data
NEEDS += test:iproute2                      # hosts of a network that one machine plays
NEEDS += test:nginx-light                   # an HTTP server
NEEDS += test:procps                        # pgrep
NEEDS += wheel:xz-utils                     # packs the tarball
NEEDS += test:openssl                       # its certificates
NEEDS += test:locales                       # a language that writes 1,5
NEEDS += test:liblua5.1-0                   # another Lua in a program that uses the library
NEEDS += test:valgrind                      # programs that use the library, looked at as they run
NEEDS += test:python3                       # writes files in other projects' formats
NEEDS += test:python3-numpy                 # arrays that the Python package hands out
NEEDS += slurm:slurmctld                    # a cluster on this machine, for its spec
NEEDS += slurm:slurmd                       # its nodes
NEEDS += slurm:slurm-client                 # srun, sbatch, scontrol
NEEDS += slurm:munge                        # how its daemons trust each other
NEEDS += slurm:libpmix2                     # srun --mpi=pmix
NEEDS += report:chromium                    # shows pages of reports, for their spec: 0.4 GB
NEEDS += test:python3-prometheus-client     # reads files of metrics, for their spec
# `make lint` wants those of Debian 12: other versions of clang-format lay the code out otherwise.
NEEDS += lint:clang-format                  # layout of C
NEEDS += lint:clang-tidy                    # static analysis of C
NEEDS += lint:lua-check                     # static analysis of Lua
NEEDS += fuzz:clang                         # libFuzzer is clang's
NEEDS += fuzz:libclang-rt-dev               # libFuzzer and the sanitizers
NEEDS += python:python3-torch               # PyTorch, for its specs: 0.5 GB with what it needs
NEEDS += peers+wheel+python:python3-venv    # other loaders, and what makes wheels, apart from all else
NEEDS += servers:curl                       # the plain download of `make bench PARTS=servers`
NEEDS += wheel:libopenmpi-dev               # a wheel serves both MPIs
NEEDS += tarball:debootstrap                # bare systems, in which it is tried
NEEDS += ffcv:python3-dev                   # builds FFCV
NEEDS += ffcv:libopencv-dev                 # builds FFCV
NEEDS += ffcv:libturbojpeg0-dev             # builds FFCV
NEEDS += spdl:libavdevice59                 # SPDL loads it

NEEDS += $(addprefix libraries:,$(shell sed -n '/^#/!s/^\(\S* *\)\{6\}\(\S*\) .*/\2/p' make/libraries.txt))

# The packages of one who needs them.
package_list = $(foreach row,$(NEEDS),$(if $(filter $(1),$(subst +, ,$(firstword $(subst :, ,$(row))))),$(lastword $(subst :, ,$(row)))))

SUDO = $(if $(filter 0,$(shell id -u)),,sudo)
define install_for
@missing=; for package in $(sort $(foreach who,$(1),$(call package_list,$(who)))); do \
  dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; done; \
if [ -n "$$missing" ]; then \
  command -v apt-get >/dev/null || { echo "needs Debian's packages$$missing; this system has no apt-get"; exit 1; }; \
  [ -z "$(SUDO)" ] || command -v $(SUDO) >/dev/null || { echo "needs Debian's packages$$missing; only root may install" \
    "them, and there is no $(SUDO). \`make\` alone builds with the libraries that it finds"; exit 1; }; \
  echo "installing$$missing"; \
  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; fi
endef

.PHONY: deps deps-demo deps-cuda deps-ffcv deps-spdl deps-lint deps-wheel
deps:
	$(call install_for,build libraries openmpi demo test)
# An MPI that is there serves, whichever it is.
deps-demo:
	$(call install_for,build libraries demo $(if $(MPI_PLUGINS),,$(or $(MPI),openmpi)))
deps-cuda deps-ffcv deps-spdl:
	$(call install_for,$(@:deps-%=%))
deps-wheel:
	$(call install_for,build libraries openmpi wheel)
deps-lint: deps
	$(call install_for,lint)
