"""The readers of formats beside shardrt, each as its documentation would have it fast: see formats_common.py.

Records: what comes in file order is shuffled in a buffer of 1,024 (shardrt, as whoever reads at random, takes an epoch
in one order of all). Images: a random box of 8 to 100 % of the area, ratio 3/4 to 4/3, brought to 224 x 224."""
import itertools
import math
import random

import numpy as np

import formats_common as common

BUFFER = 1024


def spread(stream, batch):
    """Batches of what a stream gives, one by one."""
    while True:
        yield common.rows(itertools.islice(stream, batch))


def crop_box(height, width, rng):
    """As torchvision's RandomResizedCrop.get_params: top, left, height, width."""
    for _ in range(10):
        area = height * width * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, height - h), rng.randint(0, width - w), h, w
    return 0, 0, height, width


# ---- tf.data --------------------------------------------------------------------------------------------------------


def tfdata_records(work, threads):
    """Whole batches of Examples parsed at once; both files in turn, a thread ahead for each."""
    import tensorflow as tf
    spec = {"record": tf.io.FixedLenFeature([], tf.string)}

    def parse(examples):
        return tf.io.decode_raw(tf.io.parse_example(examples, spec)["record"], tf.uint8, fixed_length=common.WIDTH)

    dataset = (tf.data.TFRecordDataset(work.paths, buffer_size=1 << 20, num_parallel_reads=len(work.paths))
               .shuffle(BUFFER).repeat().batch(work.batch).map(parse, num_parallel_calls=threads).prefetch(2))
    for batch in tf_stream(dataset, threads):
        yield np.asarray(memoryview(batch))


def tfdata_images(work, threads):
    """decode_and_crop_jpeg, which decodes the box alone, with the decoder's faster transform."""
    import tensorflow as tf
    box = tf.zeros([0, 0, 4], tf.float32)

    def load(path):
        data = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(data), box, aspect_ratio_range=(3 / 4, 4 / 3), area_range=(0.08, 1.0),
            max_attempts=10, use_image_if_no_bounding_boxes=True)
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.io.decode_and_crop_jpeg(data, window, channels=3, dct_method="INTEGER_FAST")
        image = tf.image.resize(image, (common.SIZE, common.SIZE))
        return tf.cast(tf.round(image), tf.uint8)

    dataset = (tf.data.Dataset.from_tensor_slices(work.paths).shuffle(work.count).repeat()
               .map(load, num_parallel_calls=threads).batch(work.batch).prefetch(2))
    for batch in tf_stream(dataset, threads):
        yield np.asarray(memoryview(batch))


def tf_stream(dataset, threads):
    import tensorflow as tf
    tf.config.set_visible_devices([], "GPU")
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = False
    return dataset.with_options(options)


# ---- the formats' own packages --------------------------------------------------------------------------------------


def tfrecord(work, _):
    """The package tfrecord, which reads with Python alone."""
    from tfrecord.reader import tfrecord_loader
    from tfrecord.iterator_utils import shuffle_iterator

    def epochs():
        while True:
            yield from shuffle_iterator((bytes(x["record"]) for path in work.paths
                                         for x in tfrecord_loader(path, None, {"record": "byte"})), BUFFER)

    return spread(epochs(), work.batch)


def array_record(work, threads):
    """A batch's records in one call for each file, which reads with threads of its own; batches made ahead."""
    from array_record.python.array_record_module import ArrayRecordReader
    readers = [ArrayRecordReader(path, "readahead_buffer_size:0,index_storage_option:in_memory") for path in work.paths]
    each = work.count // len(readers)

    def read(ids):
        return common.rows(itertools.chain.from_iterable(
            reader.read((ids[ids // each == i] - i * each).tolist()) for i, reader in enumerate(readers)))

    yield from ahead(read, work, threads)


def grain_records(work, threads):
    import grain
    source = grain.sources.ArrayRecordDataSource(work.paths)
    dataset = (grain.MapDataset.source(source).shuffle(seed=0).repeat()
               .batch(work.batch, batch_fn=common.rows)
               .to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads + 1)))
    return iter(dataset)


def grain_images(work, threads):
    """With PIL, which decodes and resizes without Python's lock."""
    import grain
    from PIL import Image

    def load(path):
        image = Image.open(path)
        top, left, height, width = crop_box(image.height, image.width, random)
        size = (common.SIZE, common.SIZE)
        return np.asarray(image.resize(size, Image.Resampling.BILINEAR, (left, top, left + width, top + height)))

    dataset = (grain.MapDataset.source(work.paths).shuffle(seed=0).repeat().map(load).batch(work.batch)
               .to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads + 1)))
    return iter(dataset)


def webdataset(work, workers):
    import webdataset as wds
    dataset = wds.WebDataset(work.paths, shardshuffle=len(work.paths), nodesplitter=wds.single_node_only)
    dataset = dataset.shuffle(BUFFER).to_tuple("bin").batched(
        work.batch, partial=False, collation_fn=lambda rows: common.rows(record for record, in rows))
    return endless(dataset, workers)


def streaming(work, workers):
    from streaming import StreamingDataset

    class Dataset(StreamingDataset):
        def __getitem__(self, i):
            return np.frombuffer(super().__getitem__(i)["record"], np.uint8)

    dataset = Dataset(local=str(work.folder), shuffle=True, batch_size=work.batch, num_canonical_nodes=1)
    return endless(dataset, workers, batch_size=work.batch, collate_fn=np.stack, drop_last=True)


def endless(dataset, workers, batch_size=None, **options):
    """PyTorch's DataLoader, or, without workers, what stands before it; batches, epoch after epoch."""
    import torch
    from torch.utils.data import DataLoader
    torch.set_num_threads(1)
    if workers:
        options |= {"persistent_workers": True, "prefetch_factor": 4}
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=workers,
                        **{"collate_fn": lambda x: x} | options)
    while True:
        for batch in loader:
            yield batch


# ---- images ---------------------------------------------------------------------------------------------------------


# ---- Arrow ----------------------------------------------------------------------------------------------------------


def pyarrow_rows(work, threads):
    """Slices of mapped files, or rows that `take` finds in them, copied into batches; these are made ahead."""
    import pyarrow as pa
    paths = sorted(work.folder.glob("*.arrow"))
    batches = [batch.column("input_ids") for path in paths for batch in pa.ipc.open_stream(pa.memory_map(str(path)))]
    starts = np.cumsum([0] + [len(batch) for batch in batches])

    def rows(column):
        return column.flatten().to_numpy().reshape(len(column), -1)

    def read(ids):
        out = np.empty((len(ids), common.WIDTH // 4), np.int32)
        where = np.searchsorted(starts, ids, side="right") - 1
        for i in np.unique(where):
            mine = where == i
            at = ids[mine] - starts[i]
            found = batches[i].slice(at[0], len(at)) if work.in_order else batches[i].take(pa.array(at))
            out[mine] = rows(found)
        return out

    yield from ahead(read, work, threads)


def ahead(read, work, threads):
    """What `read` makes of the batches' numbers, on threads, in order."""
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(threads) as pool:
        orders = common.orders(work)
        pending = [pool.submit(read, next(orders)) for _ in range(threads + 1)]
        while True:
            pending.append(pool.submit(read, next(orders)))
            yield pending.pop(0).result()


def datasets_rows(work, threads):
    """Without workers its own batches of numpy; with them PyTorch's DataLoader, as its documentation has both."""
    import datasets
    datasets.disable_progress_bars()
    dataset = datasets.load_from_disk(str(work.folder))
    if threads > 0:
        import torch
        torch.set_num_threads(1)
        loader = torch.utils.data.DataLoader(
            dataset.with_format("torch", dtype=torch.int32), batch_size=work.batch, shuffle=not work.in_order,
            num_workers=threads, persistent_workers=True)
        while True:
            for batch in loader:
                yield batch["input_ids"].numpy()
    for seed in itertools.count():
        epoch = dataset if work.in_order else dataset.shuffle(seed=seed, keep_in_memory=True)
        for batch in epoch.with_format("numpy", dtype=np.int32).iter(work.batch):
            yield batch["input_ids"]


# ---- Megatron -------------------------------------------------------------------------------------------------------


def megatron_windows(work, threads):
    """GPTDataset, as Megatron's training has it: one sample after the other, by PyTorch's DataLoader. It gives masks
    and positions, too, which shardrt's windows do not have."""
    import torch
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split
    torch.set_num_threads(1)

    class Tokenizer:
        eod, pad, vocab_size, unique_identifiers = -1, -2, 1 << 24, {}

    config = GPTDatasetConfig(
        random_seed=1234, sequence_length=work.width, blend=None, blend_per_split=None, split="1",
        path_to_cache=str(work.folder / "cache"), tokenizer=Tokenizer(), reset_position_ids=False,
        reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False)
    indexed = IndexedDataset(work.prefix)
    documents = np.arange(len(work.stops), dtype=np.int32)
    dataset = GPTDataset(indexed, work.prefix, documents, None, Split.train, config)
    for batch in torch_batches(dataset, work, threads):
        yield batch["tokens"].numpy(), batch["labels"].numpy()


def megatron_documents(work, threads):
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    torch.set_num_threads(1)
    indexed = IndexedDataset(work.prefix)

    class Documents(torch.utils.data.Dataset):
        def __len__(self):
            return work.count

        def __getitem__(self, i):
            tokens = indexed[i]
            row = np.zeros(work.width, np.int32)
            row[:len(tokens)] = tokens
            return row

    for batch in torch_batches(Documents(), work, threads):
        yield batch.numpy()


def torch_batches(dataset, work, threads):
    import torch
    loader = torch.utils.data.DataLoader(dataset, batch_size=work.batch, drop_last=True, num_workers=threads,
                                         persistent_workers=threads > 0)
    while True:
        yield from loader


# ---- images ---------------------------------------------------------------------------------------------------------


def torchvision_images(work, workers):
    """torchvision's own decoder (libjpeg-turbo) and resize of uint8."""
    import torch
    from torchvision import io
    from torchvision.transforms import v2
    crop = v2.RandomResizedCrop(common.SIZE, antialias=True)

    class Dataset(torch.utils.data.Dataset):
        def __len__(self):
            return work.count

        def __getitem__(self, i):
            return crop(io.decode_jpeg(io.read_file(work.paths[i]))).permute(1, 2, 0)

    for batch in endless(Dataset(), workers, work.batch, shuffle=True, drop_last=True,
                         collate_fn=torch.utils.data.default_collate):
        yield batch.numpy()


def pillow_images(work, workers):
    """torchvision's ImageFolder and transforms on PIL images, as most recipes have it."""
    import torch
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import RandomResizedCrop
    crop = RandomResizedCrop(common.SIZE)
    dataset = ImageFolder(work.folder, transform=lambda image: torch.from_numpy(np.array(crop(image))))
    for batch, _ in endless(dataset, workers, work.batch, shuffle=True, drop_last=True,
                            collate_fn=torch.utils.data.default_collate):
        yield batch.numpy()


def dali_images(work, threads):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=work.batch, num_threads=threads, device_id=None, prefetch_queue_depth=2)
    def pipeline():
        data, _ = fn.readers.file(file_root=str(work.folder), random_shuffle=True, initial_fill=work.count)
        images = fn.decoders.image_random_crop(data, device="cpu", random_area=(0.08, 1.0),
                                               random_aspect_ratio=(3 / 4, 4 / 3), use_fast_idct=True)
        return fn.resize(images, device="cpu", size=(common.SIZE, common.SIZE), interp_type=types.INTERP_LINEAR,
                         antialias=True)

    run = pipeline()
    run.build()
    while True:
        yield run.run()[0].as_array()


def spdl_images(work, threads):
    """FFmpeg's decoder, cut and scaled by its filters, in SPDL's threads; without those that FFmpeg adds to each."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder
    one = spdl.io.decode_config(decoder_options={"threads": "1"})

    def load(path):
        top, left, height, width = crop_box(375, 500, random)
        chain = f"crop={width}:{height}:{left}:{top}:exact=1,scale={common.SIZE}:{common.SIZE}:flags=bilinear:threads=1"
        packets = spdl.io.demux_image(path)
        return spdl.io.decode_packets(packets, decode_config=one, filter_desc=spdl.io.get_video_filter_desc(
            filter_desc=chain, pix_fmt="rgb24"))

    def join(frames):
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    paths = (work.paths[i] for batch in common.orders(work) for i in batch)
    pipeline = (PipelineBuilder().add_source(paths).pipe(load, concurrency=threads).aggregate(work.batch)
                .pipe(join).add_sink(2).build(num_threads=threads))
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


PEERS = {name: globals()[name] for name in (
    "tfdata_records", "tfdata_images", "tfrecord", "array_record", "grain_records", "grain_images", "webdataset",
    "streaming", "pyarrow_rows", "datasets_rows", "megatron_windows", "megatron_documents", "torchvision_images",
    "pillow_images", "dali_images", "spdl_images")}

if __name__ == "__main__":
    common.serve(PEERS)
