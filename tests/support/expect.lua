-- What specs expect of texts, of jobs and of what is refused.

local expect = {}

--- That every piece stands in the text, letter by letter.
---@param text string
---@param ... string
function expect.contains(text, ...)
  for _, piece in ipairs { ... } do
    assert(text:find(piece, 1, true), ("%q is not in: %s"):format(piece, text))
  end
end

--- That a job (what mpi.run gives back) ended with status 0. Returns it.
function expect.well(result)
  assert(result.status == 0, ("status %d: %s"):format(result.status, result.output))
  return result
end

--- That f(...) raises a text that holds the piece and begins with a place: in the spec that expects it, or, where that
--- hands f over without a function of its own around it, here. Returns the text.
---@param piece string
---@param f function
function expect.refused(piece, f, ...)
  local ok, message = pcall(f, ...)
  assert(not ok, "was not refused: " .. piece)
  message = tostring(message)
  expect.contains(message, piece)
  local place, here = message:match "^([^:\n]*):%d+: ", debug.getinfo(1, "S").short_src
  assert(place == debug.getinfo(2, "S").short_src or place == here, "the place is not the caller's: " .. message)
  return message
end

return expect
