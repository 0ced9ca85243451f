"""tf.data: the row numbers shuffled as one tensor for each epoch (a shuffle buffer takes them one by one), a batch by
tf.gather of the file as a tensor in memory, THREADS batches at a time; a batch's memory is handed to jax as it is."""
import numpy as np
import tensorflow as tf

import common


def batches(work, threads):
    tf.config.set_visible_devices([], "GPU")
    records = isinstance(work, common.Records)
    sources = [tf.constant(x) for x in ([work.rows] if records else [work.inputs, work.targets])]

    def epoch(_):
        ids = tf.random.shuffle(tf.range(work.count))
        return tf.data.Dataset.from_tensor_slices(tf.reshape(ids, (-1, work.batch)))

    def gather(ids):
        rows = [tf.gather(source, ids) for source in sources]
        return tuple(rows if records else [tf.cast(x, tf.int32) for x in rows])

    dataset = tf.data.Dataset.counter().flat_map(epoch).map(gather, num_parallel_calls=threads).prefetch(2)
    for arrays in dataset:
        yield common.put([np.asarray(memoryview(x)) for x in arrays])


common.serve(batches)
