# What `make install` lays under $(DESTDIR)$(PREFIX), in rows MODE:FILE:PLACE; `make uninstall` removes it (make/install.sh).

DOCUMENTS := README.md CONTRIBUTING.md LICENSE runtime/README.md $(sort $(shell find docs examples recipes -type f ! -name '*.shardrt-index' ! -path '*/__pycache__/*'))
# The documents lie to each other as in the tree, so that their links lead on.
LAID_DOCS = $(foreach file,$(DOCUMENTS),644:$(file):share/doc/shardrt/$(file)) \
            644:$(BUILD)/include/shardrt.h:share/doc/shardrt/runtime/shardrt.h
LAID = 755:$(BUILD)/shardrt:bin/shardrt 755:$(BUILD)/libshardrt.so.0:lib/libshardrt.so.0 \
       link:libshardrt.so.0:lib/libshardrt.so 644:$(BUILD)/libshardrt.a:lib/libshardrt.a \
       644:$(BUILD)/installed.pc:lib/pkgconfig/shardrt.pc 644:$(BUILD)/include/shardrt.h:include/shardrt.h \
       $(foreach file,$(MPI_PLUGINS),755:$(file):lib/shardrt/$(notdir $(file))) \
       644:runtime/shardrt.1:share/man/man1/shardrt.1 \
       $(foreach file,$(LUA),644:$(file):share/shardrt/$(file)) # for editors
LAID_CUDA = [ ! -e $(BUILD)/shardrt-cuda.so ] || echo 755:$(BUILD)/shardrt-cuda.so:lib/shardrt/shardrt-cuda.so
lay = sh make/install.sh lay '$(DESTDIR)$(PREFIX)'
# So that programs find the library under /usr/local.
tell_linker = [ -n '$(DESTDIR)' ] || ldconfig 2>/dev/null || true

.PHONY: install install-docs uninstall
# What was built, as it is: whoever installs, often root, may have another toolkit or none.
install: $(BUILD)/shardrt library $(if $(CUDA_MISSING)$(wildcard $(BUILD)/shardrt-cuda.so),,$(BUILD)/shardrt-cuda.so)
	@[ ! -e $(BUILD)/shardrt-cuda.so ] || [ -z "$$(find $(PLUGIN) $(KERNELS) -newer $(BUILD)/shardrt-cuda.so)" ] || { \
	  echo "$(BUILD)/shardrt-cuda.so is older than what it is made of: \`make cuda\` makes it anew"; exit 1; }
	@sed 's|^prefix=.*|prefix=$(PREFIX)|' $(BUILD)/shardrt.pc > $(BUILD)/installed.pc
	@{ printf '%s\n' $(LAID) $(LAID_DOCS); $(LAID_CUDA); } | $(lay)
	@$(tell_linker)
install-docs: $(BUILD)/include/shardrt.h
	@printf '%s\n' $(LAID_DOCS) | $(lay)
uninstall:
	@sh make/install.sh remove '$(DESTDIR)$(PREFIX)'
	@$(tell_linker)
