-- T.tokenize: what Hugging Face's tokenizers and tiktoken make of texts, and what is refused. The vocabularies and the
-- answers are those of tests/golden/tokens.py and token_ids.py.

local ffi = require "ffi"
local C = require "shardrt.base.ffi"
local files = require "tests.support.files"
local json = require "shardrt.base.json"
local no_memory = require "tests.support.no_memory"
local shardrt = require "shardrt"
local T, ndarray = shardrt.transform, shardrt.ndarray

local expect = require "tests.support.expect"
local refused = expect.refused

local FOLDER = "tests/golden/tokenize/"
local answers = json.decode(files.slurp(FOLDER .. "answers.json"))

-- A source of texts, each a sample.
local function source_of(texts)
  local hosts = {}
  for i, text in ipairs(texts) do
    hosts[i] = ndarray.empty({ #text }, "uint8")
    ffi.copy(hosts[i].data, text, #text)
  end
  return shardrt.source.ragged { text = hosts }
end

local function tokens_of(texts, o)
  local source = source_of(texts):map { tokens = { from = "text", T.tokenize(o) } }
  assert.same({ -1 }, source.fields.tokens.shape)
  assert.equal("int32", source.fields.tokens.dtype)
  local made = {}
  for i, host in ipairs(source:read(0, #texts).tokens) do made[i] = host:to_table() end
  return made
end

describe("tokenize", function()
  local folder
  setup(function() folder = files.folder() end)
  teardown(function() files.remove(folder) end)

  for name in pairs(answers.tokens) do
    it("gives what the package gives, for " .. name, function()
      local o = { file = FOLDER .. name .. ".json" }
      if answers.patterns[name] then
        o = { file = FOLDER .. "ranks.tiktoken", pattern = name,
          special_tokens = { ["<|end|>"] = 5000 } }
      end
      local made = tokens_of(answers.texts, o)
      for i, text in ipairs(answers.texts) do
        assert.same(answers.tokens[name][i], made[i], ("%s, text %d: %q"):format(name, i, text))
      end
      if not answers.patterns[name] then return end
      o.pattern = answers.patterns[name] -- the expression itself
      assert.same(made, tokens_of(answers.texts, o))
    end)
  end

  it("numbers added tokens as the package does, whatever the file's ids say", function()
    local cases = json.decode(files.slurp "tests/golden/token_ids.json")
    assert.equal(40, #cases)
    for i, case in ipairs(cases) do
      local path = files.write(folder, ("ids-%d.json"):format(i), case.file)
      assert.same({ case.tokens }, tokens_of({ case.text }, { file = path }), ("case %d, %s"):format(i, case.file))
    end
  end)

  it("stands before others in a list, and feeds packed rows and batches", function()
    local texts = answers.texts
    local source = source_of(texts):map {
      tokens = { from = "text", T.tokenize { file = FOLDER .. "gpt2.json" } },
      first = { from = "text", T.tokenize { file = FOLDER .. "gpt2.json" }, T.pad { size = { 400 } },
        T.crop { size = { 2 } } },
      text = false,
    }
    local first = source:read(0, #texts).first
    for i, ids in ipairs(answers.tokens.gpt2) do
      assert.same({ ids[1] or 0, ids[2] or 0 }, first:rows(i - 1, 1):to_table()[1])
    end
    local rows = source:filter { tokens = function(sample) return sample.size > 3 end }:pack { length = 256 }
    local found, expected = 0, 0
    for _, ids in ipairs(answers.tokens.gpt2) do expected = expected + (#ids > 3 and #ids or 0) end
    for batch in shardrt.loader { source = rows, batch_size = 8, epochs = 1, remainder = "pad" } do
      for _, shard in ipairs(batch.segment_ids.addressable_shards) do
        for i = 0, shard.data.size - 1 do found = found + (shard.data.data[i] > 0 and 1 or 0) end
      end
    end
    assert.equal(expected, found)
    assert.same({ "first" }, rows.dropped.fields)
  end)

  it("names the sample and the byte where a text is no UTF-8", function()
    local source = source_of({ "fine", "bad \xff here" }):map {
      text = { T.tokenize { file = FOLDER .. "gpt2.json" } },
    }
    local message = refused("UTF-8", function() source:read(0, 2) end)
    expect.contains(message, "sample 1", "byte 4 of its 10 is ff", "transform.tokenize")
  end)

  it("refuses by name what is not supported", function()
    local text = files.slurp(FOLDER .. "llama3.json")
    local function changed(what, by, says)
      local other, times = text:gsub(what, by, 1)
      assert.equal(1, times, what)
      refused(says, function() T.tokenize { file = files.write(folder, "changed.json", other) } end)
    end
    changed('"type":"BPE"', '"type":"Unigram"', 'the model "Unigram" is not supported')
    changed('"type":"ByteLevel"', '"type":"Metaspace"', 'the pre-tokenizer "Metaspace"')
    -- A tokenizer of words has no bytes in its vocabulary, either.
    local words = '{"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "BPE", "unk_token": "?", "vocab": '
      .. '{"?": 0, "a": 1}, "merges": []}}'
    refused('the pre-tokenizer "Whitespace" is not supported', function()
      T.tokenize { file = files.write(folder, "words.json", words) }
    end)
    changed('"normalizer":null', '"normalizer":{"type":"Lowercase"}', 'the normalizer "Lowercase"')
    changed("{1,3}", "{1,4}", "the expression")
    changed('"behavior":"Isolated"', '"behavior":"Removed"', 'the behavior "Removed"')
    changed('"dropout":null', '"dropout":0.1', "a dropout")
    changed('"end_of_word_suffix":null', '"end_of_word_suffix":"</w>"', "end_of_word_suffix")
    changed('"merges":%[%["', '"merges":[["zzz', "merge 0 is of tokens that the vocabulary does not have")
    refused("malformed tokenizer", function()
      T.tokenize { file = files.write(folder, "cut.json", text:sub(1, #text / 2)) }
    end)
    refused("needs pattern", function() T.tokenize { file = FOLDER .. "ranks.tiktoken" } end)
    refused("is not known; there are gpt2", function()
      T.tokenize { file = FOLDER .. "ranks.tiktoken", pattern = "x" }
    end)
    refused("line 1 is no token in base64", function()
      T.tokenize { file = files.write(folder, "x", "hello"), pattern = "gpt2" }
    end)
    refused("says its pattern", function() T.tokenize { file = FOLDER .. "gpt2.json", pattern = "gpt2" } end)
    refused("cannot be read", function() T.tokenize { file = folder .. "/none.json" } end)
    refused("it takes a text", function()
      local tokenize = T.tokenize { file = FOLDER .. "gpt2.json" }
      shardrt.source.array { x = ndarray.zeros({ 2, 3 }, "int32") }:map { x = { tokenize } }
    end)
  end)

  it("gives everything back wherever an allocation fails", function()
    for _, name in ipairs { "qwen2.json", "ranks.tiktoken" } do
      local given = name == "qwen2.json" and "" or "gpt2"
      local bytes = name .. "\0" .. given .. "\0<|end|>\0007\0\0" .. files.slurp(FOLDER .. name)
      local failures = no_memory.each(function()
        local out = ffi.new "shardrt_transform *[1]"
        local code = C.shardrt_transform_new("tokenize", 0, nil, #bytes, bytes, out)
        if code == 0 then C.shardrt_transform_free(out[0]) else assert.is_true(out[0] == nil) end
        return code
      end)
      assert.is_true(failures > 8, name)
    end
  end)
end)
