-- The layout's words as another process of another job would see them, and golden cases in these words.

local cjson = require "cjson"

local layout = {}

local MODULES = {
  "shardrt.layout.device", "shardrt.layout.mesh", "shardrt.layout.spec", "shardrt.layout.sharding",
  "shardrt.layout.visualize", "shardrt.array.reshard",
}

--- The words of devices, meshes, specs, shardings and pictures for process `process` of `processes` with
--- `devices_per_process` each; the modules that specs otherwise see stay as they are.
function layout.words(process, processes, devices_per_process)
  local before, words = {}, {}
  for _, name in ipairs(MODULES) do
    before[name], package.loaded[name] = package.loaded[name], nil
  end
  local job = { process_index = process, process_count = processes, devices_per_process = devices_per_process,
    platform = "host" }
  require("shardrt.layout.device").job = function() return job end
  for _, name in ipairs(MODULES) do
    local module = require(name)
    words[name:match "[^.]+$"] = module
    for word, value in pairs(module.words) do words[word] = value end
  end
  words.plan_of = require("shardrt.array.reshard").plan_of -- also of what becomes a part of another array
  for _, name in ipairs(MODULES) do package.loaded[name] = before[name] end
  return words
end

--- A spec from its golden form: a list of null, a name, or a list of names.
function layout.spec(words, spec)
  local entries = {}
  for i, entry in ipairs(spec) do
    if entry ~= cjson.null then entries[i] = entry end
  end
  return words.P(unpack(entries, 1, #spec))
end

--- A mesh from its golden form.
function layout.mesh(words, mesh)
  local names = {}
  for i, name in ipairs(mesh.axis_names) do
    if name ~= cjson.null then names[i] = name end
  end
  if mesh.device_ids then return words.Mesh(mesh.shape, names, mesh.device_ids) end
  return words.make_mesh(mesh.shape, names)
end

function layout.sharding(words, case)
  return words.NamedSharding(layout.mesh(words, case.mesh), layout.spec(words, case.spec))
end

return layout
