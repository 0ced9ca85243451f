"""tf.data: the row numbers shuffled as one tensor for each epoch (a shuffle buffer takes them one by one), a batch by
tf.gather of the file as a tensor in memory, THREADS batches at a time; a batch's memory is handed to jax as it is."""
import numpy as np
import tensorflow as tf

import common


def batches(work, threads):
    tf.config.set_visible_devices([], "GPU")
    source = tf.constant(work.rows)

    def epoch(_):
        ids = tf.random.shuffle(tf.range(work.count))
        return tf.data.Dataset.from_tensor_slices(tf.reshape(ids, (-1, work.batch)))

    def gather(ids):
        rows = tf.gather(source, ids)
        if isinstance(work, common.Records):
            return (rows,)
        return tf.cast(rows[:, :-1], tf.int32), tf.cast(rows[:, 1:], tf.int32)

    dataset = tf.data.Dataset.counter().flat_map(epoch).map(gather, num_parallel_calls=threads).prefetch(2)
    for arrays in dataset:
        yield common.put([np.asarray(memoryview(x)) for x in arrays])


common.serve(batches)
