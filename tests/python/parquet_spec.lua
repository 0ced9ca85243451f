-- Parquet files that pyarrow, DuckDB and Polars write at random, with what pyarrow reads of them.

local random_tables = require "tests.support.python.random_tables"

describe("Parquet files beside pyarrow", function()
  if not random_tables.python then
    pending(random_tables.missing)
    return
  end
  for case = 1, random_tables.CASES do
    it("are read as it reads them, seed " .. random_tables.seed(case), function()
      random_tables.check("parquet", case, 400)
    end)
  end
end)
