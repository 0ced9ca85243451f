-- Arrow files and streams that pyarrow writes at random, with what pyarrow reads of them.

local random_tables = require "tests.support.python.random_tables"

describe("Arrow files beside pyarrow", function()
  if not random_tables.python then
    pending(random_tables.missing)
    return
  end
  for case = 1, random_tables.CASES do
    it("are read as it reads them, seed " .. random_tables.seed(case), function()
      random_tables.check("arrow", case, 200)
    end)
  end
end)
