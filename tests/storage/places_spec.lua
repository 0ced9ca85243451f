-- long: 30 s
-- Files of Google's, Azure's and Hugging Face's servers, and of others that want headers: read and listed, with who one
-- is from all places where that may stand; what a refusal says; and that no secret is seen anywhere.

local files = require "tests.support.files"
local mpi = require "tests.support.mpi"
local outcome = require "tests.support.storage.outcome"
local server = require "tests.support.server"
local shardrt = require "shardrt"

local ROWS = 30000 -- of three numbers: 360 KB, two blocks
local COMMIT, NEXT = ("0a1b2c3d"):rep(5), ("fedcba98"):rep(5)
local ODD = "Ωμέγα/with space+plus=100%?#[1].npy" -- a key that must be encoded everywhere
local SECRETS = {
  "hmac/secret", "user secret", "1//refresh", "ya29", "short lived", "PRIVATE KEY", "Signature=", "sig=", "sas/",
  "dGhlIGtleSBvZiB0", "hf_secret", "key of the api", "cdn-secret", "X-Amz-Credential",
}
local folder, google, azure, hub

local function save(path, first)
  local x = shardrt.ndarray.arange(ROWS * 3, "int32")
  x.data[0] = first
  x:reshape({ ROWS, 3 }):save(folder .. "/" .. path)
end

setup(function()
  folder = files.folder()
  os.execute(("cd '%s' && mkdir -p data/Ωμέγα public late cut/x circle/x folders/x datasets/owner models/owner && "
    .. "for r in datasets/owner/set datasets/owner/private datasets/owner/gated datasets/owner/expiring "
    .. "datasets/owner/cut datasets/owner/moving models/owner/net; do mkdir -p $r/%s/x/deep; done; "
    .. "mkdir -p datasets/owner/set/%s/x datasets/owner/moving/%s"):format(folder, COMMIT, NEXT, NEXT))
  save("plain.npy", 5)
  save("second.npy", 6)
  os.execute(("cp -r tests/files/mds/raw '%s/mds'"):format(folder))
  save("data/plain.npy", 1)
  save("data/" .. ODD, 2)
  for i, place in ipairs { "public", "late", "folders" } do save(place .. "/plain.npy", i) end
  for i = 1, 7 do -- three pages
    for _, place in ipairs { "data", "cut", "circle", "folders" } do
      os.execute(("mkdir -p '%s/%s/x/deep'"):format(folder, place))
      files.write(folder, ("%s/x/%d.csv"):format(place, i), "a\n" .. i .. "\n")
      files.write(folder, ("%s/x/deep/%d.csv"):format(place, i), "a\n1\n")
    end
    for _, place in ipairs { "datasets/owner/set", "datasets/owner/cut" } do
      files.write(folder, ("%s/%s/x/%d.csv"):format(place, COMMIT, i), "a\n" .. i .. "\n")
    end
    files.write(folder, ("datasets/owner/set/%s/x/%d.csv"):format(NEXT, i), "a\n100\n")
  end
  files.write(folder, ("datasets/owner/set/%s/x/deep/é #1.csv"):format(COMMIT), "a\n1\n")
  for i, place in ipairs { "datasets/owner/set", "datasets/owner/private", "datasets/owner/expiring",
    "models/owner/net" } do
    save(("%s/%s/plain.npy"):format(place, COMMIT), i)
  end
  save(("datasets/owner/moving/%s/plain.npy"):format(COMMIT), 1)
  save(("datasets/owner/moving/%s/plain.npy"):format(NEXT), 2)
  save(("datasets/owner/set/%s/plain.npy"):format(NEXT), 9)
  google, azure = server.start("storage/google", folder), server.start("storage/azure", folder)
  hub = server.start("storage/hub", folder)
  files.write(hub.work, "main", COMMIT)
end)
teardown(function()
  for _, one in ipairs { google, azure, hub } do one:stop() end
  files.remove(folder)
end)

-- Runs recipes with an own cache and home: cases of {source, env, expected}, where `expected` is what it prints, or a
-- list of what its one line of an error says. `always`: the environment of all.
local function run(source, env, o)
  local cache, home, all = files.folder(), o and o.home or files.folder(), { NO_GCE_CHECK = "true" }
  for name, value in pairs(env) do all[name] = value end
  all.SHARDRT_CACHE, all.HOME = cache, all.HOME or home
  local result = mpi.run { source = [[
    local shardrt = require "shardrt"
    local source = shardrt.source
    local function read(address, o)
      local s = source.npy({ x = address }, o)
      local x, sum = s:read(0, #s).x, 0
      for i = 0, x.size - 1 do sum = sum + x.data[i] end
      io.write(#s, " ", x.data[0], " ", sum, "\n")
    end
    local function count(pattern, o) io.write(#source.csv(pattern, o), "\n") end
    ]] .. source, env = all, processes = o and o.processes, devices = 1,
    options = o and o.options }
  for _, text in ipairs(SECRETS) do
    assert.falsy(result.output:find(text, 1, true), text .. " is shown: " .. result.output)
  end
  local grep = "grep -rlaF -e '%s' '%s'"
  local found = io.popen(grep:format(table.concat(SECRETS, "' -e '"), cache)):read "*a"
  assert.equal("", found, "secrets in the cache")
  files.remove(cache)
  if not (o and o.home) then files.remove(home) end
  return result
end

local gives, fails = outcome.gives(run), outcome.fails(run)

-- Several sources that fail, each by itself in one job: what each says, in one line.
local function refuses(env, cases)
  local program, expected = {}, {}
  for source, said in pairs(cases) do
    expected[#expected + 1] = said
    program[#program + 1] = ("do local ok, why = pcall(function() %s end) io.write(tostring(ok), ' ', tostring(why), "
      .. "'\\n') end"):format(source)
  end
  local result, i = run(table.concat(program, "\n"), env), 0
  assert.equal(0, result.status, result.output)
  for line in result.stdout:gmatch "[^\n]*" do
    if line ~= "" then
      i = i + 1
      local said = expected[i] or "?"
      assert.truthy(line:find "^false " and line:find(said, 1, true), line .. " is not " .. said)
    end
  end
  assert.equal(#expected, i, result.stdout)
end

local function is(i) return ("%d %d %d\n"):format(ROWS, i, ROWS * 3 * (ROWS * 3 - 1) / 2 + i) end

local function with(env, more)
  local all = {}
  for name, value in pairs(env) do all[name] = value end
  for name, value in pairs(more or {}) do all[name] = value end
  return all
end

describe("gs://", function()
  local at, token
  setup(function()
    at = { STORAGE_EMULATOR_HOST = google.host }
    token = with(at, { GOOGLE_OAUTH_ACCESS_TOKEN = "ya29.given" })
  end)

  it("is read and listed with a token", function()
    google:log()
    gives(is(1) .. is(2) .. "7\n8\n14\n", ([[
      read "gs://data/plain.npy"
      read "gs://data/%s"
      count "gs://data/x/*.csv"
      count { "gs://data/x/?.csv", "gs://data/x/deep/1.csv" }
      count { "gs://data/x/{1..7}.csv", "gs://data/*/deep/*.csv" }
    ]]):format(ODD), token)
    local ranges = 0
    for _, line in ipairs(google:log()) do ranges = ranges + (line:find(" 206 bytes=", 1, true) and 1 or 0) end
    assert.is_true(ranges >= 4)
  end)

  it("is signed with a key of HMAC, from where Google's tools have it", function()
    gives(is(1) .. "7\n", 'read "gs://data/plain.npy" count "gs://data/x/*.csv"',
      with(at, { GS_ACCESS_KEY_ID = "GOOG1EXAMPLE", GS_SECRET_ACCESS_KEY = "hmac/secret+value" }))
    gives(is(2), ("read %q"):format("gs://data/" .. ODD),
      with(at, { AWS_ACCESS_KEY_ID = "GOOG1EXAMPLE", AWS_SECRET_ACCESS_KEY = "hmac/secret+value" }))
    files.write(google.work, ".boto", "[Boto]\nx = 1\n[Credentials]\ngs_access_key_id = GOOG1EXAMPLE\n"
      .. "gs_secret_access_key = hmac/secret+value\n")
    gives(is(1), 'read "gs://data/plain.npy"', with(at, { HOME = google.work }))
    fails({ "gs://data/plain.npy: ", "403 SignatureDoesNotMatch: Access denied.; the secret is not this key's" },
      'read "gs://data/plain.npy"', with(at, { GCS_KEY = "GOOG1EXAMPLE", GCS_SECRET = "hmac/secret of another" }))
    fails({ "half there: the environment" }, 'read "gs://data/plain.npy"', with(at, { GS_ACCESS_KEY_ID = "GOOG1" }))
  end)

  it("is read by users, service accounts and machines, whose tokens are asked for", function()
    local function credentials(text) return with(at, {
      GOOGLE_APPLICATION_CREDENTIALS = files.write(google.work, "credentials.json", text),
    }) end
    local read = 'read "gs://data/plain.npy" count "gs://data/x/*.csv"'
    gives(is(1) .. "7\n", read, credentials(([[{"client_id": "id", "client_secret": "user secret&",
      "refresh_token": "1//refresh", "token_uri": "%s/token", "type": "authorized_user"}]]):format(google.url)))
    fails({ "the token of Google's user: it gives no token for gs:// (it answers 400: Bad Request)" }, read,
      credentials(([[{"type": "authorized_user", "client_id": "id", "client_secret": "user secret?",
      "refresh_token": "1//refresh", "token_uri": "%s/token"}]]):format(google.url)))
    os.execute(("cd '%s' && openssl genrsa -out key.pem 2048 2>openssl.log && openssl rsa -in key.pem -pubout "
      .. "-out public.pem 2>>openssl.log"):format(google.work))
    local account = '{"type": "service_account", "client_email": "trainer@project", "token_uri": "%s/token", '
      .. '"private_key": "%s"}'
    local pem = files.slurp(google.work .. "/key.pem"):gsub("\n", "\\n")
    google:log()
    gives(is(1) .. "7\n", read, credentials(account:format(google.url, pem)))
    local tokens = 0
    for _, line in ipairs(google:log()) do tokens = tokens + (line:find("POST /token ", 1, true) and 1 or 0) end
    assert.equal(1, tokens) -- it holds for 2^63 - 1 seconds
    fails({ "credentials.json, which should hold Google's credentials, has a private_key, and: it is no private key" },
      read, credentials(account:format(google.url, "none")))
    fails({ 'is of the type "external_account", which is not followed; service_account and authorized_user are' }, read,
      credentials '{"type": "external_account"}')
    google:log()
    gives(is(1) .. "7\n", read, with(at, { GCE_METADATA_HOST = google.host, NO_GCE_CHECK = "" }))
    local asked, refused = 0, 0
    for _, line in ipairs(google:log()) do
      asked = asked + (line:find("/computeMetadata/", 1, true) and 1 or 0)
      refused = refused + (line:find(" 401 ", 1, true) and 1 or 0)
    end
    assert.equal(2, asked) -- the first token expired before its time
    assert.is_true(refused >= 1)
  end)

  it("is read by anybody where that is allowed; refusals say what would work, in one line", function()
    gives(is(1), 'read "gs://public/plain.npy"', at)
    fails({ "gs://data/plain.npy: ", "401 AuthenticationRequired: Authentication required.; no credentials were found: "
      .. "GOOGLE_APPLICATION_CREDENTIALS" }, 'read "gs://data/plain.npy"', at)
    local wrong = with(at, { GOOGLE_OAUTH_ACCESS_TOKEN = "ya29.old" })
    fails({ "401 InvalidAuthentication: Invalid Credentials; the token is none, or has expired" },
      'read "gs://data/plain.npy"', wrong)
    refuses(token, {
      ['read "gs://none/plain.npy"'] = "404 NoSuchBucket: The specified bucket does not exist.; the bucket's name, or "
        .. "STORAGE_EMULATOR_HOST",
      ['read "gs://data/none.npy"'] = "gs://data/none.npy: there is no such file on the server (404)",
      ['read "gs://late/plain.npy"'] = "403 RequestTimeTooSkewed: ",
      ['count "gs://cut/x/*.csv"'] = "gs://cut/x/: the server's listing ends in the middle",
      ['count "gs://data/y/*.csv"'] = 'no object fits the pattern "gs://data/y/*.csv"',
      ['read "gs://ya29:x@data/plain.npy"'] = "gs://…: the name of a bucket stands behind ://",
    })
    fails({ "404 NoSuchBucket" }, 'read "gs://none/plain.npy"', token, { processes = 2 })
  end)
end)

describe("az://", function()
  local KEY = "dGhlIGtleSBvZiB0aGUgYWNjb3VudCwgYXMgbG9uZyBhcyBhbnk="
  local LATER = "2999-01-01T00%3A00%3A00Z"
  local SAS = "sv=2021-08-06&sr=c&sp=%s&se=%s&sig=sas%%2Fsignature%%2Bvalue%%3D"
  local named
  setup(function()
    named = { AZURE_STORAGE_ACCOUNT = "corpus", AZURE_STORAGE_SERVICE_ENDPOINT = azure.url .. "/corpus" }
  end)
  local read = ([[
      read "az://data/plain.npy"
      read "az://data/%s"
      count "az://data/x/*.csv"
      count { "az://data/x/?.csv", "abfs://data@corpus.dfs.core.windows.net/x/deep/*.csv" }
    ]]):format(ODD)
  local whole = is(1) .. is(2) .. "7\n14\n"

  it("is read and listed by a signature with the account's key", function()
    gives(whole, read, with(named, { AZURE_STORAGE_KEY = KEY }))
    gives(whole, read, { AZURE_STORAGE_CONNECTION_STRING = ("DefaultEndpointsProtocol=http;AccountName=corpus;"
      .. "AccountKey=%s;BlobEndpoint=%s/corpus;"):format(KEY, azure.url) })
    gives("7\n", 'count "az://folders/x/*.csv"', with(named, { AZURE_STORAGE_KEY = KEY }))
    -- The second job asks whether the file is the one that it has: If-None-Match is signed, too.
    local cache = files.folder()
    azure:log()
    local twice = 'for i = 1, 2 do read("az://data/plain.npy", { cache = %q }) end'
    gives(is(1) .. is(1), twice:format(cache), with(named, { AZURE_STORAGE_KEY = KEY }))
    local same = 0
    for _, line in ipairs(azure:log()) do same = same + (line:find(" 304 ", 1, true) and 1 or 0) end
    assert.equal(1, same)
    files.remove(cache)
  end)

  it("lies in the cloud that an address names", function()
    local proxy = with({ https_proxy = azure.url, SHARDRT_HTTP_TIMEOUT = "0.3" }, { AZURE_STORAGE_ACCOUNT = "corpus",
      AZURE_STORAGE_SAS_TOKEN = SAS:format("rl", LATER) })
    local hosts, asked = {
      ["corpus.dfs.core.chinacloudapi.cn"] = "corpus.blob.core.chinacloudapi.cn",
      ["corpus.dfs.core.usgovcloudapi.net"] = "corpus.blob.core.usgovcloudapi.net",
      ["corpus.z01.dfs.storage.azure.net"] = "corpus.z01.blob.storage.azure.net",
      ["other.blob.core.windows.net"] = "other.blob.core.windows.net", ["corpus"] = "corpus.blob.core.windows.net",
    }, {}
    local program = {}
    for host in pairs(hosts) do program[#program + 1] = ('pcall(read, "abfss://data@%s/x.npy")'):format(host) end
    azure:log()
    gives("", table.concat(program, "\n"), proxy)
    for _, line in ipairs(azure:log()) do asked[line:match "^CONNECT (%S+):443 403" or line] = true end
    for _, host in pairs(hosts) do
      assert.is_true(asked[host], host .. " was not asked")
      asked[host] = nil
    end
    assert.is_nil(next(asked))
    -- The connection's account of this name is one of another cloud, whose key goes nowhere.
    gives("", 'pcall(read, "abfss://data@corpus.dfs.core.chinacloudapi.cn/x.npy")', { https_proxy = azure.url,
      SHARDRT_HTTP_TIMEOUT = "0.3", AZURE_STORAGE_CONNECTION_STRING = "AccountName=corpus;AccountKey=" .. KEY })
    assert.truthy((azure:log()[1] or ""):find("CONNECT corpus.blob.core.chinacloudapi.cn:443", 1, true))
  end)

  it("is read and listed by a SAS, of which it is told when it expired", function()
    gives(whole, read, with(named, { AZURE_STORAGE_SAS_TOKEN = "?" .. SAS:format("rl", LATER) }))
    gives(is(1), 'read "az://data/plain.npy"', { AZURE_STORAGE_CONNECTION_STRING =
      ("BlobEndpoint=%s/corpus;SharedAccessSignature=%s"):format(azure.url, SAS:format("r", LATER)) })
    gives(is(1), 'read "abfss://data@corpus.dfs.core.windows.net/plain.npy"', { AZURE_STORAGE_CONNECTION_STRING =
      ("BlobEndpoint=%s/corpus/;SharedAccessSignature=%s"):format(azure.url, SAS:format("r", LATER)) })
    fails({ "az://data/plain.npy: ", "403 AuthenticationFailed: Signature not valid in the specified time frame; the "
      .. "SAS token expired at 2026-01-02 03:04:05 UTC" }, 'read "az://data/plain.npy"',
      with(named, { AZURE_STORAGE_SAS_TOKEN = SAS:format("rl", "2026-01-02T03%3A04%3A05Z") }))
    fails({ "403 AuthorizationPermissionMismatch: ", "for patterns also listing (l)" }, 'count "az://data/x/*.csv"',
      with(named, { AZURE_STORAGE_SAS_TOKEN = SAS:format("r", LATER) }))
  end)

  it("is read by anybody where that is allowed; refusals say what would work, in one line", function()
    gives(is(1), 'read "az://public/plain.npy"', named)
    fails({ "404 ResourceNotFound: ", "; no credentials were found: AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN" },
      'read "az://data/plain.npy"', named)
    fails({ "az://data/plain.npy: of which account this is, nothing says; AZURE_STORAGE_ACCOUNT" },
      'read "az://data/plain.npy"', {})
    fails({ "403 AuthenticationFailed: ", "the key is not this account's, or this machine's clock is off" },
      'read "az://data/plain.npy"', with(named, { AZURE_STORAGE_KEY = "YW5vdGhlciBvbmU=" }))
    fails({ "the key of the storage account corpus: it is not in base64" }, 'read "az://data/plain.npy"',
      with(named, { AZURE_STORAGE_KEY = "not base64" }))
    local keyed = with(named, { AZURE_STORAGE_KEY = KEY })
    refuses(keyed, {
      ['read "az://none/plain.npy"'] = "404 ContainerNotFound: The specified container does not exist.; the cont",
      ['read "az://data/none.npy"'] = "az://data/none.npy: there is no such file on the server (404)",
      ['count "az://cut/x/*.csv"'] = "az://cut/x/: the server's listing ends in the middle",
      ['count "az://circle/x/*.csv"'] = "az://circle/x/: the server's listing goes on where it is, or was before, with",
      ['read "abfss://data@corpus.dfs.example.com/x.npy"'] = "corpus.dfs.example.com is no host of Azure's; behind the",
      ['read "az://data/x/../plain.npy"'] = 'objects with a part ".." in their keys cannot be asked for',
      ['read "az://corpus:a@data/plain.npy"'] = "az://…: the name of a container stands behind ://",
      ['read "az://data/plain.npy?sv=1&sig=sas%2Fs"'] = '"az://data/plain.npy": a signature stands behind it',
      ['count "s3://data/x.csv?X-Amz-Signature=a"'] = '"s3://data/x.csv": a signature stands behind it',
    })
  end)

  it("that is empty is told from one whose bytes cannot be had", function()
    files.write(folder, "data/empty.csv", "")
    fails({ "az://data/empty.csv: holds no row" }, 'count "az://data/empty.csv"',
      with(named, { AZURE_STORAGE_KEY = KEY }))
  end)
end)

describe("hf://", function()
  local at
  setup(function() at = { HF_ENDPOINT = hub.url } end)

  it("is read and listed, datasets and models, at a commit that is asked for once", function()
    hub:log()
    gives(is(1) .. is(1) .. is(4) .. "7\n1\n1\n" .. is(9), ([[
      read "hf://datasets/owner/set/plain.npy"
      read "hf://datasets/owner/set@%s/plain.npy"
      read "hf://owner/net/plain.npy"
      count "hf://datasets/owner/set/x/?.csv"
      count "hf://datasets/owner/set@refs%%2Fconvert%%2Fparquet/x/deep/*.csv"
      count "hf://datasets/owner/set@refs/convert/parquet/x/deep/*.csv"
      read "hf://datasets/owner/set@refs/pr/7/plain.npy"
    ]]):format(COMMIT), at)
    local asked = 0
    for _, line in ipairs(hub:log()) do asked = asked + (line:find("/revision/main", 1, true) and 1 or 0) end
    assert.equal(2, asked) -- of the dataset, and of the model
  end)

  it("stays at that commit while others are pushed", function()
    gives("28\n28\n700\n", ([[
      local function sum(address, cache)
        local s = source.csv(address, { cache = cache })
        local x, n = s:read(0, #s).a, 0
        for i = 0, #s - 1 do n = n + tonumber(x.data[i]) end
        io.write(n, "\n")
      end
      sum "hf://datasets/owner/set/x/?.csv"
      local file = io.open(%q, "w")
      file:write "%s"
      file:close()
      sum("hf://datasets/owner/set/x/?.csv", os.getenv "SHARDRT_CACHE" .. "/other")
      sum "hf://datasets/owner/set@%s/x/?.csv"
    ]]):format(hub.work .. "/main", NEXT, NEXT), at)
    files.write(hub.work, "main", COMMIT)
  end)

  it("is at one commit in all processes of a job, whatever is pushed while they ask", function()
    hub:log()
    gives("1 1\n1 1\n1 1\n", [[
      local address = "hf://datasets/owner/moving/plain.npy"
      local s = source.npy { x = address }
      shardrt.loader { source = s, batch_size = 3 }
      local rows = source.csv { "hf://datasets/owner/set@main/x/?.csv" }
      io.write(s:read(0, 1).x.data[0], " ", tonumber(rows:read(0, 1).a:item()), "\n")
    ]], at, { processes = 3 })
    local asked = 0
    for _, line in ipairs(hub:log()) do asked = asked + (line:find("/revision/main ", 1, true) and 1 or 0) end
    assert.equal(2, asked) -- of two repositories
    local result = run([[
      if shardrt.process_index() == 1 then os.execute "sleep 20" end
      source.npy { x = "hf://datasets/owner/moving/plain.npy" }
    ]], at, { processes = 2, options = { "--timeout", "5" } })
    assert.is_true(result.status ~= 0)
    assert.truthy(result.stderr:find("process 1 did not come to asking which commits revisions are", 1, true),
      result.stderr)
  end)

  it("is refused where processes that read different things were told of different commits", function()
    fails({ "the file hf://datasets/owner/moving/plain.npy must be the same in every process; different from "
      .. "process 0: process 1" }, [[
      local mine = { "hf://datasets/owner/moving/plain.npy" }
      if shardrt.process_index() == 1 then mine[2] = "hf://owner/net/plain.npy" end
      local made = source.npy { x = mine[1], y = mine[2] }
      shardrt.loader { source = source.npy { x = mine[1] }, batch_size = 2 }
    ]], at, { processes = 2 })
  end)

  it("has a token from where Hugging Face's tools have it, which does not come to other hosts", function()
    local read = 'read "hf://datasets/owner/private/plain.npy"'
    gives(is(2), read, with(at, { HF_TOKEN = "hf_secretToken" }))
    os.execute(("mkdir -p '%s/.cache/huggingface'"):format(hub.work))
    files.write(hub.work, ".cache/huggingface/token", "hf_secretToken\n")
    gives(is(2), read, with(at, { HOME = hub.work }))
    files.write(hub.work, "token", "hf_secretToken")
    gives(is(2), read, with(at, { HF_HOME = hub.work }))
    fails({ "hf://datasets/owner/private/plain.npy: ", "401 RepoNotFound: Repository not found", "or it is private, "
      .. "and no token was found: HF_TOKEN" }, read, with(at, { HOME = hub.work, HF_HUB_DISABLE_IMPLICIT_TOKEN = "1" }))
  end)

  it("asks for another link where one expired on the way", function()
    gives(is(3), 'read "hf://datasets/owner/expiring/plain.npy"', at)
  end)

  it("is refused in one line that says what would work", function()
    refuses(at, {
      ['read "hf://datasets/owner/none/plain.npy"'] = "401 RepoNotFound: Repository not found; there is no such repo",
      ['read "hf://datasets/owner/set@v9/plain.npy"'] = "404 RevisionNotFound: Invalid rev id: v9; the repository",
      ['read "hf://datasets/owner/set/none.npy"'] = "set/none.npy: there is no such file on the server (404)",
      ['read "hf://datasets/owner/gated/plain.npy"'] = "403 GatedRepo: ",
      ['count "hf://datasets/owner/set/y/*.csv"'] = "no object fits the pattern",
      ['count "hf://datasets/owner/cut/x/*.csv"'] = "x/: the server's listing ",
      ['read "hf://datasets/owner/set"'] = "hf://datasets/owner/set: it names a repository, and no file in it",
      ['read "hf://owner/net/x/../plain.npy"'] = 'objects with a part ".." in their keys cannot be asked for',
      ['read "hf://plain.npy"'] = "hf://plain.npy: owner and name stand behind ://",
    })
    fails({ "401: Invalid username or password.; there is no such repository" },
      'read "hf://datasets/owner/set/plain.npy"', with(at, { HF_TOKEN = "hf_secretOfAnother" }), { processes = 2 })
  end)
end)

describe("http:// with headers", function()
  local KEY = 'headers = { ["X-Api-Key"] = "key of the api" }'

  it("sends them to the host that is meant, and not to others", function()
    gives(is(5) .. is(1), ('read("%s/with/plain.npy", { %s }) read("%s/away/%s", { %s })'):format(hub.url, KEY, hub.url,
      ("datasets/owner/set/%s/plain.npy"):format(COMMIT):gsub("/", "%%2F"), KEY), {})
    fails({ "/with/plain.npy: ", "401: Who are you?" }, ('read "%s/with/plain.npy"'):format(hub.url), {})
  end)

  it("are each source's own, of files that lie beside each other, and those of a folder for all in it", function()
    gives(is(5) .. is(6) .. "true\n", ([[
      local function open(name, key)
        return source.npy({ x = "%s/with/" .. name }, { headers = { ["X-Api-Key"] = key } })
      end
      local one, other = open("plain.npy", "key of the api"), open("second.npy", "second key of the api")
      for _, s in ipairs { one, other } do
        local x, sum = s:read(0, #s).x, 0
        for i = 0, x.size - 1 do sum = sum + x.data[i] end
        io.write(#s, " ", x.data[0], " ", sum, "\n")
      end
      local mds = source.mds("%s/with/mds/", { %s, fields = { number = "int64" } })
      io.write(tostring(mds:read(#mds - 1, 1).number.size == 1), "\n")
    ]]):format(hub.url, hub.url, KEY), {})
    fails({ "/with/second.npy: ", "401: Who are you?" }, ([[
      source.npy({ x = "%s/with/plain.npy" }, { %s })
      read("%s/with/second.npy")
    ]]):format(hub.url, KEY, hub.url), {})
  end)

  it("refuses what is none", function()
    local cases = {}
    for given, said in pairs {
      ['{ ["X\\n"] = "a" }'] = "a header's name has letters",
      ['{ X = "key of the api\\r\\nHost: b" }'] = "the end of a line",
      ['{ Range = "bytes=0-1" }'] = "the header Range is shardrt's own", ['"Authorization: x"'] = "headers is a table",
      ["{ X = 1 }"] = "headers has names and texts",
    } do
      cases[('read("%s/with/plain.npy", { headers = %s })'):format(hub.url, given)] = said
    end
    refuses({}, cases)
  end)

  it("says when a link expired", function()
    local amz = "X-Amz-Credential=a&X-Amz-Date=20260102T030405Z&X-Amz-Expires=60&X-Amz-Signature=b"
    fails({ "/link/plain.npy?…: ", "403 AccessDenied: Request has expired; this link expired at 2026-01-02 03:05:05" },
      ('read "%s/link/plain.npy?%s"'):format(hub.url, amz), {})
    fails({ "this link expired at 2026-02-03 00:00:00 UTC" },
      ('read "%s/link/plain.npy?sp=r&se=2026-02-03T00:00:00Z&sig=b"'):format(hub.url), {})
    gives(is(5), ('read "%s/link/plain.npy?se=2999-01-01T00:00:00Z&sig=b"'):format(hub.url), {})
  end)
end)

describe("docs/places.md", function()
  it("shows what works", function()
    local s3 = require("tests.support.storage.s3").start(folder)
    os.execute(("ln -s data '%s/corpus'"):format(folder))
    local env = with(s3.env, { STORAGE_EMULATOR_HOST = google.host, GOOGLE_OAUTH_ACCESS_TOKEN = "ya29.given",
      HF_ENDPOINT = hub.url, AZURE_STORAGE_CONNECTION_STRING = "BlobEndpoint=" .. azure.url .. "/corpus;"
        .. "AccountName=corpus;AccountKey=dGhlIGtleSBvZiB0aGUgYWNjb3VudCwgYXMgbG9uZyBhcyBhbnk=",
      API_KEY = "key of the api" })
    local blocks = 0
    for block in files.slurp("docs/places.md"):gmatch "```lua\n(.-)```" do
      blocks = blocks + 1
      gives(("%d\t%d\n"):format(7 + 3 + 1 + 7, ROWS), (block:gsub("https://host", hub.url)), env)
    end
    assert.equal(1, blocks)
    s3:stop()
  end)
end)

describe("secrets", function()
  it("stand in no checkpoint, trace, report or message of a job that reads with them", function()
    local out = files.folder()
    local result = run(([[
      local loader = shardrt.loader {
        source = source.npy({ x = "gs://data/plain.npy", y = "hf://datasets/owner/private/plain.npy",
          z = "%s/with/plain.npy", w = "az://data/plain.npy" }, { headers = { ["X-Api-Key"] = "key of the api" } }),
        batch_size = 1000, epochs = 1,
      }
      local checkpoint = shardrt.checkpoint { dir = "%s/checkpoints", loader = loader, every = 10 }
      local n = 0
      for batch in loader do n = n + 1 checkpoint:step() end
      print(n, (tostring(loader:stats()):gsub("%%%%", "")))
    ]]):format(hub.url, out), {
      STORAGE_EMULATOR_HOST = google.host, GOOGLE_OAUTH_ACCESS_TOKEN = "ya29.given", HF_ENDPOINT = hub.url,
      HF_TOKEN = "hf_secretToken", AZURE_STORAGE_CONNECTION_STRING = "BlobEndpoint=" .. azure.url .. "/corpus;"
        .. "AccountName=corpus;AccountKey=dGhlIGtleSBvZiB0aGUgYWNjb3VudCwgYXMgbG9uZyBhcyBhbnk=",
    }, { options = { "--trace", out .. "/trace.json", "--report", out .. "/report.html" } })
    assert.equal(0, result.status, result.output)
    local found = io.popen(("grep -rlaF -e '%s' '%s'"):format(table.concat(SECRETS, "' -e '"), out)):read "*a"
    assert.equal("", found)
    files.remove(out)
  end)
end)
