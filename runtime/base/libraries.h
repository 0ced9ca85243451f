/* libraries.h - what this shardrt was built with: make/libraries.txt lists the libraries, of which all but LuaJIT and
 * zlib may be missing. A source of one that is missing is compiled with SHARDRT_WITHOUT_ZSTD, say, and its calls fail
 * here. */
#ifndef SHARDRT_BASE_LIBRARIES_H
#define SHARDRT_BASE_LIBRARIES_H

/* Those that were there, for users: "HDF5 (libhdf5), Zstandard (libzstd), …". */
const char *libraries_built_in(void);

/* The plug-ins for MPI that were built: "OpenMPI (libmpi.so.40)"; "none". */
const char *libraries_mpi(void);

/* EINVAL: this shardrt lacks `name`, as "HDF5 (libhdf5)". */
int libraries_missing(const char *name);

#endif
