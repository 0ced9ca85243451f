# The library: what the program is made of, without its command line. Only shardrt_* is seen of either form.
#
#   libshardrt.so.0  opens LuaJIT by itself, and stays loaded: its threads and MPI's end go on in it
#   libshardrt.a     one object; `pkg-config --static --libs shardrt` has the program show shardrt_* to recipes, and find the
#                    plug-ins where they are installed

VERSION := $(shell sed -n 's/^  return "\([0-9.]*\)";/\1/p' runtime/base/error.c)
LIBRARY_OBJECTS := $(filter-out $(patsubst runtime/%.c,$(BUILD)/%.o,$(wildcard runtime/*.c)),$(OBJECTS)) $(LUA_OBJECTS)
PRIVATE = $(filter-out -lluajit%,$(LIBS)) -pthread

# Sanitizers stand in the program; what they watch of the library is in libshardrt.a.
library: $(BUILD)/include/shardrt.h $(if $(SANITIZE),,$(BUILD)/libshardrt.so) $(BUILD)/libshardrt.a $(BUILD)/shardrt.pc
$(BUILD)/libshardrt.so.0: $(LIBRARY_OBJECTS) make/library.map make/library.mk
	$(call quiet,link )$(CC) -shared -Wl,-soname,libshardrt.so.0 -Wl,--version-script=make/library.map -Wl,-Bsymbolic \
	  -Wl,-z,defs -Wl,-z,nodelete -Wl,--as-needed $(LDFLAGS) -o $@ $(LIBRARY_OBJECTS) $(PRIVATE)
$(BUILD)/libshardrt.so: $(BUILD)/libshardrt.so.0
	ln -sf $(<F) $@
$(BUILD)/libshardrt.a: $(LIBRARY_OBJECTS) make/library.mk
	$(call quiet,ar   )rm -f $@; $(LD) -r -o $(BUILD)/libshardrt.o $(LIBRARY_OBJECTS) && \
	  objcopy --wildcard --keep-global-symbol='shardrt_*' $(BUILD)/libshardrt.o && $(AR) rcs $@ $(BUILD)/libshardrt.o
# The public header in one file.
$(BUILD)/include/shardrt.h: runtime/shardrt.h $(filter %_api.h,$(HEADERS)) make/header.awk
	@mkdir -p $(@D)
	$(call quiet,head )awk -f make/header.awk $< > $@
$(BUILD)/shardrt.pc: make/library.mk $(BUILD)/libraries.mk runtime/base/error.c
	$(call quiet,pc   )printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' '' 'Name: shardrt' \
	  'Description: meshes, shardings, loaders and transfers for distributed training' 'Version: $(VERSION)' \
	  'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lshardrt' \
	  'Libs.private: -rdynamic -Wl,-rpath,$${libdir}/shardrt $(PRIVATE)' > $@
