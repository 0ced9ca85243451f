std = "luajit"
max_line_length = 120
files["tests"].std = "+busted"
files["recipes"].globals = { "arg" }
