# The Python package beside PyTorch (Debian's) and JAX, Parquet beside pyarrow, DuckDB and Polars, MDS beside Streaming,
# and sounds and images beside soundfile and Pillow (of PyPI, in an environment under build/): their specs, which `make
# test` runs where it finds them, and the package's types, as who has neither sees them, too.

PYTHON_SPECS := $(sort $(filter-out %/wheel_spec.lua,$(wildcard tests/python/*_spec.lua)) tests/library/stream_spec.lua \
                         tests/source_tree/docs_spec.lua)

.PHONY: test-python deps-python
deps-python: deps
	$(call install_for,python)
test-python: $(BUILD)/python/made $(BUILD)/python-types/made
	@$(MAKE) $(CHECKED) all
	cd python && $(abspath $(BUILD))/python-types/bin/basedpyright --pythonpath $(abspath $(BUILD))/python-types/bin/python
	cd python && $(abspath $(BUILD))/python-types/bin/basedpyright --pythonpath $(abspath $(BUILD))/python/bin/python
	cd python && $(abspath $(BUILD))/python-types/bin/basedpyright --pythonpath /usr/bin/python3
	SHARDRT_TEST_PYTHON=1 $(MAKE) $(CHECKED) specs SPECS="$(PYTHON_SPECS)"

$(BUILD)/python/made: PACKAGES = 'jax[cpu]' pyarrow==26.0.0 duckdb==2.0.0 polars==2.1.0 soundfile==0.14.0 pillow==13.0.0 \
                                 typing-extensions
$(BUILD)/python/made: ALONE = mosaicml-streaming==0.13.0 # without what it asks for: what encodes its samples needs the above
$(BUILD)/python-types/made: PACKAGES = basedpyright numpy
$(BUILD)/python/made $(BUILD)/python-types/made: make/python.mk | deps-python
	rm -rf $(@D)
	/usr/bin/python3 -m venv $(@D)
	$(@D)/bin/pip install --quiet $(PACKAGES)
	$(if $(ALONE),$(@D)/bin/pip install --quiet --no-deps $(ALONE))
	touch $@
