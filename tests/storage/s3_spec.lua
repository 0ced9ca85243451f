-- long: 25 s
-- Objects in buckets: read as files are, with signatures that a server of our own computes again; who one is, from all
-- places where that may stand; patterns and listings; what a refusal says.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local outcome = require "tests.support.storage.outcome"
local s3 = require "tests.support.storage.s3"
local shardrt = require "shardrt"

local KEYS = { "plain.npy", "with space+plus=100%.npy", "Ωμέγα/ü?#[1].npy", "deep/er/x.npy" }
local ROWS = 30000 -- of three numbers: 360 KB, two blocks
local folder, server

setup(function()
  folder = files.folder()
  os.execute(("cd '%s' && mkdir -p data/Ωμέγα data/deep/er data/tars public slow elsewhere malformed late denied "
    .. "expiring cut/x endless/x circle/x verbatim/x"):format(folder))
  for i, key in ipairs(KEYS) do
    local x = shardrt.ndarray.arange(ROWS * 3, "int32")
    x.data[0] = i
    x:reshape({ ROWS, 3 }):save(("%s/data/%s"):format(folder, key))
  end
  for _, bucket in ipairs { "public", "slow", "elsewhere", "malformed", "late", "denied" } do
    os.execute(("cp '%s/data/plain.npy' '%s/%s/'"):format(folder, folder, bucket))
  end
  os.execute(("cd '%s' && cp data/plain.npy expiring/ && cp data/plain.npy expiring/deep.npy"):format(folder))
  for i = 0, 10 do -- four pages of a listing
    local copy = "cp recipes/data/shard-00000%d.tar '%s/data/tars/part-%02d.tar'"
    os.execute(copy:format(i % 2, folder, i))
  end
  for _, name in ipairs { "a#1", "a%41", "a&b", "a+b 1", "a<'>", "aü" } do -- two pages
    files.write(folder, ("verbatim/x/%s.csv"):format(name), "a\n1\n")
  end
  for _, bucket in ipairs { "cut", "endless", "circle" } do
    for i = 1, 7 do files.write(folder, ("%s/x/%d.csv"):format(bucket, i), "a\n1\n") end
  end
  local command = "cp -r tests/files/mds '%s/data/'; touch '%s/data/tars/part-03.tar.shardrt-index'"
  os.execute(command:format(folder, folder))
  server = s3.start(folder)
end)
teardown(function()
  server:stop()
  files.remove(folder)
end)

-- Runs a recipe with an own cache; `env` is added to the server's, where false takes a variable away.
local function run(source, env, o)
  local cache, all = files.folder(), { SHARDRT_CACHE = "" }
  for name, value in pairs(server.env) do all[name] = value end
  for name, value in pairs(env or {}) do all[name] = value or "" end
  all.SHARDRT_CACHE = cache
  local result = mpi.run { source = [[
    local shardrt = require "shardrt"
    local source = shardrt.source
    ]] .. source, env = all, processes = o and o.processes, options = o and o.options, devices = 1 }
  files.remove(cache)
  for _, secret in ipairs { "wJalr", "not the secret", "Signature=", "old token" } do
    assert.falsy(result.output:find(secret, 1, true), result.output)
  end
  return result
end

local gives, fails = outcome.gives(run), outcome.fails(run)

local READ = [[
  local s = source.npy { x = %q }
  local x, sum = s:read(0, #s).x, 0
  for i = 0, x.size - 1 do sum = sum + x.data[i] end
  io.write(#s, " ", x.data[0], " ", sum, "\n")
]]
local function reads(i) return ("%d %d %d\n"):format(ROWS, i, ROWS * 3 * (ROWS * 3 - 1) / 2 + i) end

describe("an object in a bucket", function()
  it("is read in parts, whatever its key is made of", function()
    server:log()
    for i, key in ipairs(KEYS) do gives(reads(i), READ:format("s3://data/" .. key)) end
    for _, line in ipairs(server:log()) do
      assert.truthy(line:find " 206 bytes=" or line:find " 403 " or line:find " 404 ", line)
    end
  end)

  it("is asked for by the host that its bucket and region are", function()
    server:log()
    for place, host in pairs {
      ["corpus cn-north-1"] = "corpus.s3.cn-north-1.amazonaws.com.cn", ["a.b x-1"] = "s3.x-1.amazonaws.com",
    } do
      local bucket, region = place:match "(%S+) (%S+)"
      fails(("s3://%s/x.npy: "):format(bucket), READ:format(("s3://%s/x.npy"):format(bucket)), {
        AWS_ENDPOINT_URL = false, AWS_REGION = region, https_proxy = server.url, SHARDRT_HTTP_TIMEOUT = "0.5",
      })
      assert.truthy(server:log()[1]:find("CONNECT " .. host .. ":443", 1, true))
    end
  end)

  it("is signed for the host that is sent, however the endpoint writes it", function()
    local port = server.url:match ":(%d+)$"
    for _, endpoint in ipairs { "HTTP://127.1:", "http://someone:word@127.0.0.1:", "127.0.0.1:0" } do
      gives(reads(1), READ:format "s3://data/plain.npy", { AWS_ENDPOINT_URL = endpoint .. port })
    end
  end)

  it("has an address of bucket and key, in which no secret stands", function()
    fails("s3://data/: it names a bucket, and no object in it", READ:format "s3://data/")
    fails('objects with a part ".." in their keys cannot', READ:format "s3://data/deep/../plain.npy")
    fails("s3://…: the name of a bucket stands behind ://", READ:format "s3://AKID:wJalr@data/plain.npy")
    fails("s3://../plain.npy: the name of a bucket stands behind ://", READ:format "s3://../plain.npy")
    fails("s3://…: the name of a bucket stands behind ://", READ:format "s3://AKID:wJalr/XU@data/plain.npy")
  end)

  it("is read by anybody where that is allowed, and who may not is told how to say who one is", function()
    local nobody = { AWS_ACCESS_KEY_ID = false, AWS_SECRET_ACCESS_KEY = false }
    gives(reads(1), READ:format "s3://public/plain.npy", nobody)
    fails({ "s3://data/plain.npy: ", "403 AccessDenied: Access Denied; no credentials were found: AWS_ACCESS_KEY_ID" },
      READ:format "s3://data/plain.npy", nobody)
  end)

  it("is asked for again where the server is too busy, and elsewhere where its bucket lies there", function()
    server:log()
    gives(reads(1), READ:format "s3://slow/plain.npy")
    local busy = 0
    for _, line in ipairs(server:log()) do busy = busy + (line:find(" 503 ", 1, true) and 1 or 0) end
    assert.is_true(busy >= 2)
    for _, bucket in ipairs { "elsewhere", "malformed" } do
      gives(reads(1), READ:format(("s3://%s/plain.npy"):format(bucket)))
      local refused = 0
      for _, line in ipairs(server:log()) do refused = refused + (line:find " 30?[01] " and 1 or 0) end
      assert.is_true(refused <= 16, bucket .. ": once for each request that was under way")
    end
  end)

  it("that is empty is told from one whose bytes cannot be had", function()
    files.write(folder, "data/empty.csv", "")
    fails("s3://data/empty.csv: holds no row", 'source.csv "s3://data/empty.csv"')
  end)

  it("of MDS is found by its index", function()
    local open = "local s = source.mds %q; io.write(#s, ' ', tostring(s), '\\n')"
    local name = "raw"
    local here = mpi.run {
      source = 'local source = require("shardrt").source ' .. open:format("tests/files/mds/" .. name),
    }
    assert.equal(0, here.status, here.output)
    gives(here.stdout, open:format("s3://data/mds/" .. name))
    local lie = files.slurp(folder .. "/data/mds/scalars/index.json")
      :gsub('"samples": %d+', '"samples": 2000000000000000000'):gsub('"bytes": %d+', '"bytes": 9000000000000000000')
    files.write(folder, "data/mds/scalars/index.json", lie)
    fails("index.json tells of 2000000000000000000 samples", open:format "s3://data/mds/scalars")
  end)
end)

describe("who one is for S3", function()
  local none = { AWS_ACCESS_KEY_ID = false, AWS_SECRET_ACCESS_KEY = false }
  local function with(more)
    local all = {}
    for name, value in pairs(none) do all[name] = value end
    for name, value in pairs(more) do all[name] = value end
    return all
  end
  local read = READ:format "s3://data/plain.npy"

  it("stands in files of profiles", function()
    files.write(server.work, "credentials", "[default]\naws_access_key_id = AKIDEXAMPLE\n"
      .. "aws_secret_access_key=wJalr/XUtn+FEMI=K7MDENG\n\n# another\n[train]\naws_access_key_id = ASIATEMPORARY\n"
      .. "aws_secret_access_key = tempo/rary\naws_session_token = new token\n[half]\naws_access_key_id = x\n")
    files.write(server.work, "config", ("[default]\nregion = us-west-2\n[profile train]\nregion = eu-west-3\n"
      .. "endpoint_url = %s/\n"):format(server.url))
    gives(reads(1), read, none)
    gives(reads(1), READ:format "s3://elsewhere/plain.npy",
      with { AWS_PROFILE = "train", AWS_ENDPOINT_URL = false, AWS_REGION = false })
    -- They are read once, for as long as they hold: nobody misses the file behind the first request.
    gives(reads(1) .. reads(1), ("do %s end os.remove(%q) do %s end"):format(READ:format "s3://elsewhere/plain.npy",
      server.work .. "/config", READ:format "s3://public/plain.npy"),
      with { AWS_PROFILE = "train", AWS_ENDPOINT_URL = false, AWS_REGION = false })
    fails('AWS_PROFILE is "nobody", and neither ', read, with { AWS_PROFILE = "nobody" })
    fails("has one of access key and secret key, not both", read, with { AWS_PROFILE = "half" })
    fails("the environment has one of access key", read, with { AWS_ACCESS_KEY_ID = "x" })
    os.remove(server.work .. "/credentials")
    os.remove(server.work .. "/config")
  end)

  it("is read anew, once, when a token has expired", function()
    local name = server.work .. "/credentials"
    local profile = "[default]\naws_access_key_id = ASIATEMPORARY\naws_secret_access_key = tempo/rary\n"
      .. "aws_session_token = %s\n"
    files.write(server.work, "credentials", profile:format "new token")
    server:log()
    gives(reads(1), ([[
      local s = source.npy { x = "s3://expiring/plain.npy" }
      s:read(29999, 1)
      local file = assert(io.open(%q, "w"))
      file:write(%q)
      file:close()
      os.execute "sleep 3" -- who refuses within two seconds refuses all that were sent together
      local s = source.npy { x = "s3://expiring/deep.npy" }
      local x, sum = s:read(0, #s).x, 0
      for i = 0, x.size - 1 do sum = sum + x.data[i] end
      io.write(#s, " ", x.data[0], " ", sum, "\n")
    ]]):format(name, profile:format "newer token"), none)
    local refused = 0
    for _, line in ipairs(server:log()) do refused = refused + (line:find " 403 " and 1 or 0) end
    assert.equal(1, refused)
    os.remove(name)
  end)

  it("is asked of the instance, and of the container", function()
    gives(reads(1), read, with { AWS_EC2_METADATA_DISABLED = "false", AWS_EC2_METADATA_SERVICE_ENDPOINT = server.url })
    fails("the credentials for S3 have expired, and where they came from gives none", read, with {
      AWS_EC2_METADATA_DISABLED = "false", AWS_EC2_METADATA_SERVICE_ENDPOINT = server.url .. "/once",
    })
    local file = files.write(server.work, "token", "task secret\n")
    gives(reads(1), read, with {
      AWS_CONTAINER_CREDENTIALS_FULL_URI = server.url .. "/container", AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE = file,
    })
    gives(reads(1), read, with {
      AWS_CONTAINER_CREDENTIALS_FULL_URI = server.url .. "/container/busy",
      AWS_CONTAINER_AUTHORIZATION_TOKEN = "task secret",
    })
    fails({ "the container's credentials", "(it answers 403)" }, read,
      with { AWS_CONTAINER_CREDENTIALS_FULL_URI = server.url .. "/container" })
  end)

  it("is refused with the server's reason, and no secret is shown", function()
    fails({ "s3://data/plain.npy: ", "403 InvalidAccessKeyId: ", "; the server does not know this access key" }, read,
      { AWS_ACCESS_KEY_ID = "AKIDNOBODY" })
    fails({ "403 SignatureDoesNotMatch: ", "; the secret key is not this access key's" }, read,
      { AWS_SECRET_ACCESS_KEY = "not the secret" })
    fails({ "400 ExpiredToken: ", "; the credentials have expired" }, read,
      { AWS_ACCESS_KEY_ID = "ASIATEMPORARY", AWS_SECRET_ACCESS_KEY = "tempo/rary", AWS_SESSION_TOKEN = "old token" })
    fails({ "403 RequestTimeTooSkewed: ", "; this machine's clock" }, READ:format "s3://late/plain.npy")
    fails("403 AccessDenied: Access Denied", READ:format "s3://denied/plain.npy")
    fails({ "s3://nothing/plain.npy: ", "404 NoSuchBucket: The specified bucket does not exist; the bucket's name" },
      READ:format "s3://nothing/plain.npy")
    fails({ "s3://data/nothing.npy: ", "404" }, READ:format "s3://data/nothing.npy")
  end)

  it("is refused in one line for all processes", function()
    fails({ "403 InvalidAccessKeyId: " }, read, { AWS_ACCESS_KEY_ID = "AKIDNOBODY" }, { processes = 2 })
  end)
end)

describe("a pattern", function()
  local show = [[
    local s = source.tar(%s, { fields = { cls = "int64" } })
    io.write(#s, "\n")
  ]]
  local function all(text) return show:format(text) end

  it("of a bucket means the objects that fit, over all pages of its listing", function()
    local one = mpi.run { source = [[local source = require("shardrt").source
      io.write(#source.tar("recipes/data/shard-000000.tar", { fields = { cls = "int64" } }), " ",
        #source.tar("recipes/data/shard-000001.tar", { fields = { cls = "int64" } }), "\n")]] }
    local even, odd = one.stdout:match "(%d+) (%d+)"
    even, odd = tonumber(even), tonumber(odd)
    gives(("%d\n"):format(6 * even + 5 * odd), all '"s3://data/tars/part-*.tar"')
    gives(("%d\n"):format(6 * even + 5 * odd), all '"s3://data/t*/part-??.tar"')
    gives(("%d\n"):format(2 * even + 2 * odd), all '"s3://data/tars/part-{02..05}.tar"')
    gives(("%d\n"):format(even + odd), all '"s3://data/tars/part-0{0,7}.tar"')
  end)

  it("is listed once in a job, and told to all its processes", function()
    local source = [[
      local expand = require("shardrt.data.file_patterns").expand
      local paths = expand("here", "s3://data/tars/part-*.tar")
      local other = shardrt.process_index() == 1 and "s3://verbatim/x/a*.csv" or "s3://data/tars/part-0*.tar"
      local own = expand("here", other)
      assert(#own == (shardrt.process_index() == 1 and 6 or 10), #own)
      shardrt.say("%d %s %s", #paths, paths[1], paths[11])
    ]]
    server:log()
    gives("11 s3://data/tars/part-00.tar s3://data/tars/part-10.tar\n", source, nil, { processes = 3 })
    local pages, others = 0, 0
    for _, line in ipairs(server:log()) do
      if line:find "prefix=tars%%2Fpart%-&" or line:find "prefix=tars%%2Fpart%- " then pages = pages + 1 end
      if line:find "prefix=tars%%2Fpart%-0" then others = others + 1 end
    end
    assert.equal(4, pages)
    assert.equal(8, others) -- where one asks for something else, each asks for its own
    fails({ "s3://nothing/", "404 NoSuchBucket" }, all '"s3://nothing/*.tar"', nil, { processes = 3 })
  end)

  it("is waited for as long as the job waits, and who does not come is named", function()
    local result = run([[
      if shardrt.process_index() == 1 then os.execute "sleep 20" end
      source.csv "s3://verbatim/x/a*.csv"
    ]], nil, { processes = 2, options = { "--timeout", "5" } })
    assert.is_true(result.status ~= 0)
    assert.truthy(result.stderr:find("process 1 did not come to listing a bucket", 1, true), result.stderr)
  end)

  it("finds keys as they are called, whether the server encodes them or not", function()
    gives("6\n", 'io.write(#source.csv "s3://verbatim/x/a*.csv", "\\n")')
  end)

  it("that fits nothing, and a listing that cannot be, are errors", function()
    fails('no object fits the pattern "s3://data/tars/none-*.tar"', all '"s3://data/tars/none-*.tar"')
    fails({ "s3://cut/x/: the server's listing ends in the middle" }, all '"s3://cut/x/*.csv"')
    fails({ "s3://endless/x/: ", "goes on, and does not say where" }, all '"s3://endless/x/*.csv"')
    fails({ "s3://circle/x/: ", "goes on where it is" }, all '"s3://circle/x/*.csv"')
    fails({ "s3://nothing/", "404 NoSuchBucket" }, all '"s3://nothing/*.tar"')
    fails("a pattern begins behind the bucket's name", all '"s3://da*/x.tar"')
  end)

  it("with braces means files of this machine and of HTTP servers, too", function()
    local source = 'io.write(#source.csv(%q), "\\n")'
    gives("4\n", source:format(folder .. "/cut/x/{1..4}.csv"))
    gives("2\n", source:format("file://" .. folder .. "/cut/x/{1,5}.csv"))
    gives("6\n", source:format(folder .. "/{cut,endless}/x/{3..1}.csv"))
    for given, said in pairs {
      [folder .. "/x/{1,{2,3}}.csv"] = "braces within braces", ["file:///x%00y.csv"] = "no path has a byte 0",
      ["/x/{0..99999999999}.csv"] = "means more than 10000000 names",
      ["/x/{1..9999}{1..9999}.csv"] = "means more than 10000000 names",
    } do
      fails(said, source:format(given))
    end
    files.write(folder, "cut/x/{a,b}.csv", "a\n1\n") -- it is called so
    gives("1\n", source:format(folder .. "/cut/x/{a,b}.csv"))
  end)
end)
