std = "luajit"
max_line_length = 120
files["tests"].std = "+busted"
files["lua/shardrt/program/program.lua"].globals = { "arg" }
