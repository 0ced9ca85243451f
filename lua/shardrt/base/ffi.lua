-- The C runtime through the FFI: what runtime/shardrt.h declares, and nothing else.
local ffi = require "ffi"

ffi.cdef(require "shardrt.cdef")

-- Functions are among those that the whole process sees; or not, where shardrt is a library that a program opened for
-- itself alone: C then says which file it is.
local library = rawget(_G, "shardrt_library")
rawset(_G, "shardrt_library", nil)
return library and ffi.load(library) or ffi.C
