"""Batches of a recipe of shardrt, for programs in Python.

    with shardrt.open("recipe.lua", devices=2) as data:
        for batch in data:
            for shard in batch["image"].shards:
                numpy.asarray(shard)  # read-only, without a copy
"""

from shardrt.array import Array, DType, Shard
from shardrt.batch import Batch
from shardrt.errors import Error, Stopped
from shardrt.library import version
from shardrt.recipe import Loader, Recipe, open  # noqa: A004 (shardrt.open, as io.open)
from shardrt.transport import Transport

__version__ = version()
__all__ = ["Array", "Batch", "DType", "Error", "Loader", "Recipe", "Shard", "Stopped", "Transport", "open"]
