-- A server that speaks as S3 does (s3.py), for specs.

local server = require "tests.support.server"

local s3 = {}

--- Starts it over a folder of buckets, as server.start does. `env`: the variables of whoever may ask it.
---@param folder string
function s3.start(folder)
  local self = server.start("storage/s3", folder)
  self.env = {
    AWS_ENDPOINT_URL = self.url, AWS_ACCESS_KEY_ID = "AKIDEXAMPLE",
    AWS_SECRET_ACCESS_KEY = "wJalr/XUtn+FEMI=K7MDENG", AWS_REGION = "us-east-1",
    AWS_EC2_METADATA_DISABLED = "true", AWS_CONFIG_FILE = self.work .. "/config",
    AWS_SHARED_CREDENTIALS_FILE = self.work .. "/credentials",
  }
  return self
end

return s3
