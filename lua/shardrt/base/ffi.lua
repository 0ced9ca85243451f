-- The C runtime through the FFI: what runtime/shardrt.h declares, and nothing else.
local ffi = require "ffi"

ffi.cdef(require "shardrt.cdef")

return ffi.C
