-- Several hosts made on this machine (hosts.sh says how), and a job over them.

local ffi = require "ffi"
local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local platform = require "tests.support.platform"

local hosts = {}

ffi.cdef "int getpid(void);"

local function quote(text) return "'" .. tostring(text):gsub("'", "'\\''") .. "'" end

local PROBE = [[
if [ "$(id -u)" != 0 ]; then echo "only root may make hosts"; exit 1; fi
for tool in ip unshare mount awk; do
  command -v $tool >/dev/null || { echo "no program $tool"; exit 1; }
done
unshare --net --uts --mount --pid --fork --kill-child --mount-proc sh -ec '
  mount --make-rprivate /
  mount -t tmpfs tmpfs /run
  ip netns add host
  ip link add switch type bridge
  ip link add port type veth peer name eth0 netns host
  ip netns exec host true' || { echo "namespaces are not allowed here"; exit 1; }
]]

--- Why there can be no hosts here; nil where they can be made.
function hosts.missing()
  local result = mpi.shell(PROBE, 20)
  if result.status ~= 0 then return result.stderr .. result.stdout:gsub("\n$", "") end
end

--- Runs a recipe, o.source, over o.hosts hosts with o.processes processes on each and o.devices in each of these; with
--- o.args, o.options (of shardrt), o.mpirun (of mpirun), o.disks (by host and file name, the texts of files that it
--- finds in $HOSTS_FOLDER/disk) for at most o.limit seconds (60). Where the recipe makes the file $HOSTS_FOLDER/ready,
--- o.down (a host's number) loses its link o.after seconds later. What comes back is as mpi.run has it, and seconds:
--- from the file's making, or the link's end, to the job's; left: the command lines of processes that were left behind.
function hosts.run(o)
  local folder = files.folder()
  local names, here = {}, io.popen "pwd":read "*l"
  for h = 0, o.hosts - 1 do
    names[h + 1] = ("host%d:%d"):format(h, o.processes)
    local disk = ("disk.host%d"):format(h)
    assert(os.execute(("mkdir %s/%s"):format(folder, disk)) == 0)
    for name, text in pairs(o.disks and o.disks[h] or {}) do files.write(folder, disk .. "/" .. name, text) end
  end
  local program = mpi.program()
  local words = {
    "mpirun --mca plm_rsh_agent", quote(here .. "/tests/support/agent.sh"), "--mca btl tcp,self,vader",
    "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0", o.mpirun or "", "--host", table.concat(names, ","),
    quote(program:match "^/" and program or here .. "/" .. program), "--devices", o.devices,
  }
  for _, option in ipairs(o.options or {}) do words[#words + 1] = quote(option) end
  words[#words + 1] = quote(files.write(folder, "recipe.lua", o.source))
  for _, argument in ipairs(o.args or {}) do words[#words + 1] = quote(argument) end
  local result = mpi.shell(table.concat({
    mpi.environment,
    platform.standin and "SHARDRT_LINKS=off" or "", -- the stand-in's NCCL stays on a host
    "HOSTS_OWNER=" .. ffi.C.getpid(), "HOSTS_FOLDER=" .. folder,
    "HOSTS_DOWN=" .. (o.down and "host" .. o.down or ""), "HOSTS_AFTER=" .. (o.after or 0),
    "sh tests/support/hosts.sh", o.hosts, quote(table.concat(words, " ")),
  }, " "), o.limit)
  local function said(name)
    local file = io.open(folder .. "/" .. name)
    local text = file and file:read "*a"
    if file then file:close() end
    return text
  end
  result.seconds, result.left = tonumber(said "seconds"), said "left"
  files.remove(folder)
  return result
end

return hosts
