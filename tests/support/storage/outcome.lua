-- What specs say of recipes that read from servers.

local expect = require "tests.support.expect"

---@alias tests.run fun(source: string, env: table?, o: table?): table # runs one; what mpi.run gives

local outcome = {}

--- One that prints this.
---@param run tests.run
---@return fun(expected: string, source: string, env: table?, o: table?)
function outcome.gives(run)
  return function(expected, source, env, o)
    local result = expect.well(run(source, env, o))
    assert(result.stdout == expected, ("%s is not %s"):format(result.stdout, expected))
  end
end

--- One that ends in an error, whose one line has this, or all of these.
---@param run tests.run
---@return fun(expected: string|string[], source: string, env: table?, o: table?)
function outcome.fails(run)
  return function(expected, source, env, o)
    local result = run(source, env, o)
    assert(result.status == 1, result.output)
    expect.contains(result.stderr, unpack(type(expected) == "table" and expected or { expected }))
    -- But for OpenMPI 5's own, which cannot be asked to be silent.
    local said = result.stderr:gsub("%-%-%-+\nprterun has exited due to process rank .-\n%-%-%-+\n", "")
    assert(select(2, said:gsub("\n", "")) == 1, result.stderr)
  end
end

return outcome
