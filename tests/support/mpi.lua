-- Starts mpirun (or one process alone) for a spec, with a time limit, and gives back what came out.

local mpi = {}

--- What mpirun needs in its environment to run as root and with more processes than cores: OpenMPI 4's words, and 5's.
--- It is not to judge how a process ended that ended with 0: once in some thousand jobs it misses an MPI_Finalize
--- (open-mpi/ompi#7833). TCP goes over the loopback: of others OpenMPI 5 complains on a machine without a network.
mpi.environment = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
  .. "OMPI_MCA_btl_tcp_if_include=lo PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe "
  .. "OMPI_MCA_orte_allowed_exit_without_sync=1 PRTE_MCA_prte_allowed_exit_without_sync=1"

local function quote(text) return "'" .. tostring(text):gsub("'", "'\\''") .. "'" end

--- The bytes of a file, which is there.
---@param path string
---@return string
function mpi.slurp(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

--- Where the program under test is: the one that runs this spec.
function mpi.program() return os.getenv "SHARDRT" or "build/shardrt" end

--- A folder of its own under the temporary directory; the caller removes it with mpi.remove.
function mpi.folder()
  local pipe = assert(io.popen "mktemp -d /tmp/shardrt-test-XXXXXX")
  local path = pipe:read "*l"
  pipe:close()
  return path
end

function mpi.remove(folder)
  assert(folder:match "^/tmp/shardrt%-test%-")
  os.execute("rm -rf " .. quote(folder))
end

--- Runs a shell command with a time limit (seconds): {status=, stdout=, stderr=, output=(both)}. Status 124: it ran
--- past the limit. It ends with the process that runs the spec, too.
function mpi.shell(command, limit)
  local folder = mpi.folder()
  local status = os.execute(("exec setpriv --pdeathsig TERM timeout -k 5 %d sh -c %s >%s/out 2>%s/err </dev/null")
    :format(limit or 60, quote(command), folder, folder))
  local result = {
    status = math.floor(status / 256), stdout = mpi.slurp(folder .. "/out"), stderr = mpi.slurp(folder .. "/err"),
  }
  if status % 256 ~= 0 then result.status = 128 + status % 256 end
  -- What mpirun says now and then of a process that has left: https://github.com/open-mpi/ompi/issues/7529
  result.stderr = result.stderr:gsub("%[[^%]\n]+%] PMIX ERROR: UNREACHABLE in file [^\n]+\n", "")
  result.output = result.stdout .. result.stderr
  mpi.remove(folder)
  return result
end

--- Runs a recipe: o.recipe (a path) or o.source (Lua text), with o.args, o.options (of shardrt), o.env (a table),
--- o.devices, and o.processes under mpirun (nil: alone, without mpirun), of which process 1 alone has o.one (a table)
--- in its environment, for at most o.limit seconds (60), and o.cpu seconds of a processor's time (as long as it likes),
--- which a busy machine does not make more of.
function mpi.run(o)
  local folder
  local recipe = o.recipe
  if not recipe then
    folder = mpi.folder()
    recipe = folder .. "/recipe.lua"
    local file = assert(io.open(recipe, "wb"))
    file:write(o.source)
    file:close()
  end
  local words = { o.cpu and ("ulimit -t %d; "):format(o.cpu) or "", "env", mpi.environment }
  for name, value in pairs(o.env or {}) do words[#words + 1] = quote(name .. "=" .. value) end
  if o.processes then
    words[#words + 1] = "mpirun -n " .. o.processes
    for name in pairs(o.env or {}) do words[#words + 1] = "-x " .. name end
  end
  if o.one then
    local own = {}
    for name, value in pairs(o.one) do own[#own + 1] = quote(name .. "=" .. value) end
    words[#words + 1] = "sh -c " .. quote(('[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export %s; exec "$0" "$@"'):format(
      table.concat(own, " ")))
  end
  words[#words + 1] = quote(mpi.program())
  if o.devices then words[#words + 1] = "--devices " .. o.devices end
  for _, option in ipairs(o.options or {}) do words[#words + 1] = quote(option) end
  words[#words + 1] = quote(recipe)
  for _, argument in ipairs(o.args or {}) do words[#words + 1] = quote(argument) end
  local result = mpi.shell(table.concat(words, " "), o.limit)
  if folder then mpi.remove(folder) end
  return result
end

--- A function(source, o) that runs recipes as mpi.run does: `head` stands before each source, and where o is silent
--- it is four processes with two devices each, or what `defaults` (as o) says. o.processes = false: alone.
---@param head string
---@param defaults? table
function mpi.runner(head, defaults)
  return function(source, o)
    local job = { processes = 4, devices = 2 }
    for _, more in ipairs { defaults or {}, o or {} } do
      for key, value in pairs(more) do job[key] = value end
    end
    job.source, job.processes = head .. source, job.processes or nil
    return mpi.run(job)
  end
end

return mpi
