-- nginx on a free port of the loopback, with a folder of its own, for specs that read over HTTP; and beside it a small
-- server of faults (faults.py), for what nginx does not do when asked. Real sockets, real servers.

local files = require "tests.support.files"

local nginx = {}

local CONFIG = [[
%s
worker_processes 2;
pid nginx.pid;
error_log error.log;
events { worker_connections 256; }
http {
  log_format ranges '$request_uri $status $http_range $body_bytes_sent $connection';
  access_log access.log ranges;
  client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
  keepalive_requests 100000;
  server {
    listen 127.0.0.1:%d;
    listen 127.0.0.1:%d ssl;
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    root %s;
    location /whole/ { alias %s/; max_ranges 0; }
    location /moved/ { rewrite ^/moved/(.*)$ /$1 redirect; }
    location /circle/ { return 302 /circle/; }
    location /forbidden/ { return 403; }
    location /down/ { return 503; }
    location /password/ { alias %s/; auth_basic "here"; auth_basic_user_file %s/users; }
  }
}
]]

local function start(self, command, ready)
  local quoted = command:gsub("'", "'\\''")
  os.execute(("sh -c '%s' >%s/start.log 2>&1 &"):format(quoted, self.work))
  for _ = 1, 300 do
    if ready() then return true end
    os.execute "sleep 0.02"
  end
  return false
end

-- Two ports that nobody listens on.
local function free_ports()
  local pipe = assert(io.popen [[python3 -c '
import socket
both = [socket.socket(), socket.socket()]
for one in both: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in both))']])
  local port, secure = pipe:read("*n", "*n")
  pipe:close()
  return assert(port, "no port is free"), secure
end

-- A certificate that nobody vouches for: cert.pem, with key.pem.
local function make_certificate(work)
  assert(os.execute(("cd '%s' && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext "
    .. "subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem >openssl.log 2>&1"):format(work)) == 0)
end

--- Starts both servers over a folder of files. `url`, `secure` (by https) and `faults` are their addresses, without a
--- slash at the end.
---@param folder string
function nginx.start(folder)
  local self = setmetatable({ folder = folder, work = files.folder() }, { __index = nginx })
  local pipe = assert(io.popen "id -u")
  local user = pipe:read "*n" == 0 and "user root;" or ""
  pipe:close()
  files.write(self.work, "users", "me:{PLAIN}secret\n")
  make_certificate(self.work)
  for _ = 1, 20 do -- somebody else may take the ports in between
    local port, secure = free_ports()
    files.write(self.work, "nginx.conf", CONFIG:format(user, port, secure, folder, folder, folder, self.work))
    if start(self, ("PATH=$PATH:/usr/sbin nginx -p %s -e error.log -c nginx.conf"):format(self.work), function()
      return files.number_in(self.work .. "/nginx.pid") -- it listens by then
    end) then
      self.url, self.secure = "http://127.0.0.1:" .. port, "https://127.0.0.1:" .. secure
      break
    end
  end
  assert(self.url, "nginx does not start: " .. files.slurp(self.work .. "/start.log"))
  assert(start(self, ("exec python3 tests/support/faults.py %s %s"):format(folder, self.work), function()
    local port = files.number_in(self.work .. "/port")
    if port then self.faults = "http://127.0.0.1:" .. math.floor(port) end
    return self.faults ~= nil
  end), "faults.py does not start")
  return self
end

--- What was asked of a server ("access" or "faults") since the last call: its lines.
function nginx:log(which)
  local name = ("%s/%s.log"):format(self.work, which or "access")
  local lines, file = {}, io.open(name)
  self.seen = self.seen or {}
  local seen = self.seen[name] or 0
  if not file then return lines end
  local n = 0
  for line in file:lines() do
    n = n + 1
    if n > seen then lines[#lines + 1] = line end
  end
  file:close()
  self.seen[name] = n
  return lines
end

--- Ends both, and removes what they wrote.
function nginx:stop()
  for _, name in ipairs { "nginx.pid", "faults.pid" } do
    local pid = files.number_in(("%s/%s"):format(self.work, name))
    if pid then os.execute(("kill %d 2>/dev/null"):format(pid)) end
  end
  files.remove(self.work)
end

return nginx
