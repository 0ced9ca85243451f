-- The lines that a command of the shell prints.

---@param command string
---@return string[]
return function(command)
  local list, pipe = {}, assert(io.popen(command))
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
end
