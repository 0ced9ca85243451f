# dist/shardrt-VERSION-linux-x86_64.tar.xz: a folder that runs wherever it is unpacked, on glibc 2.34 or newer: what `make install`
# installs, every library that it needs or opens but glibc's, gcc's, MPI's and CUDA's, and a file for environment modules.
#
#   make tarball        installs what is missing, builds, and leaves the tarball in dist/
#   make test-tarball   and tries it in bare Debian 12 and 13 with nothing but an MPI: needs root and debootstrap

TARBALL = dist/shardrt-$(VERSION)-linux-$(shell uname -m).tar.xz

.PHONY: tarball tarball-only test-tarball
tarball: deps-wheel
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory tarball-only
tarball-only: $(WHEEL_TOOLS)/installed
	@rm -rf $(BUILD)/tarball; mkdir -p $(BUILD)/tarball
	@$(MAKE) --no-print-directory install DESTDIR=$(abspath $(BUILD))/tarball PREFIX=/$(notdir $(TARBALL:.tar.xz=)) >/dev/null
	@$(WHEEL_TOOLS)/bin/python -B make/tarball.py $(BUILD)/tarball/$(notdir $(TARBALL:.tar.xz=)) $(TARBALL)

test-tarball: tarball
	$(call install_for,tarball)
	sh make/test_tarball.sh $(TARBALL) $(DEBIANS)
# Outside of the tree, which find goes through.
DEBIANS ?= /var/tmp/shardrt-debian
