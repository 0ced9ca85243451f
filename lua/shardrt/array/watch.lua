-- Who is told of what happens to arrays' handles: record/recording.lua, which stands above whoever tells, puts its own
-- functions here.

require("shardrt.base.error").own()

local watch = {}

--- A new handle, without data.
---@param handle ffi.cdata* # shardrt_array *
function watch.made(handle) local _ = handle end

--- A new handle with another's data.
---@param from ffi.cdata*
---@param handle ffi.cdata*
function watch.shared(from, handle) local _, _ = from, handle end

--- A new handle with another's data, laid out in another way.
---@param from ffi.cdata*
---@param handle ffi.cdata*
---@param move ffi.cdata*? # C's, which made it; nil: it was not C
---@param to ffi.cdata*? # the sharding that this was given
---@param options ffi.cdata*? # and the shardrt_reshard_options
function watch.moved(from, handle, move, to, options) local _, _, _, _, _ = from, handle, move, to, options end

--- A handle whose array has the same numbers whenever it is made: the host gave them, or its form does.
---@param handle ffi.cdata*
function watch.constant(handle) local _ = handle end

--- What C is called with, before that is done.
---@param call ffi.cdata*|function
---@param ... any
function watch.called(call, ...) local _, _ = call, ... end

--- Whether what is done now is to be done again by a program, which sees no element.
---@return boolean
function watch.records() return false end

--- Whether the text of an array may show its elements.
---@return boolean
function watch.shows() return true end

--- Somebody looks at an array's elements.
function watch.looked() end

return watch
