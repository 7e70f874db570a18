from __future__ import annotations

import gzip
import logging
import math
import os
import pickle
import struct
import tarfile
import tracemalloc
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import requests
import torch
from PIL import Image
from torch.distributions import Independent, Normal

from conftest import small_model
from shiftnp.batch import Batch
from shiftnp.plots.images import UNSEEN, draw_completions
from shiftnp.tasks import download
from shiftnp.tasks.image_files import DATASETS, read_cifar, read_idx, read_images, read_sheet
from shiftnp.tasks.images import ImageTask, pixel_grid, translations

PLACES = [Path(p) for p in (os.environ.get("SHIFTNP_DATA"), Path(__file__).parents[2] / "shared" / "data") if p]
RNG = np.random.default_rng(0)
DIGITS = {part: RNG.integers(0, 256, (n, 28, 28), np.uint8) for part, n in (("train", 200), ("test", 40))}
PHOTOS = {part: RNG.integers(0, 256, (n, 32, 32, 3), np.uint8) for part, n in (("train", 60), ("test", 9))}
NAMES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No network, and no data but those of the test."""

    def refuse(*args, **kwargs):
        raise requests.ConnectionError

    monkeypatch.delenv("SHIFTNP_DATA", raising=False)
    monkeypatch.setattr(download, "cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(download, "fetch", refuse)


# --- small files in every form ---------------------------------------------------------------------------------------


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def planes(photos):
    return np.ascontiguousarray(photos.transpose(0, 3, 1, 2)).reshape(len(photos), 3072)


def old_pickle(photos):
    """The bytes that Python 2 writes for {'data': array}: no Python 3 does, and the official files are such."""
    pixels = planes(photos).tobytes()
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    shape = b"J" + struct.pack("<i", len(photos)) + b"J" + struct.pack("<i", 3072) + b"\x86"
    state = b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    return b"\x80\x02}(U\x04data" + array + state + b"u."


def new_pickle(photos):
    return pickle.dumps({b"data": planes(photos), b"labels": [0] * len(photos), b"batch_label": b"one"}, protocol=2)


def binary(photos):
    return np.concatenate([np.full((len(photos), 1), 7, np.uint8), planes(photos)], 1).tobytes()


def write_cifar(folder, form):
    """CIFAR-10 in miniature; the folder or archive it is in."""
    encode = {"old": old_pickle, "new": new_pickle, "bin": binary}[form]
    place = folder / ("cifar-10-batches-bin" if form == "bin" else "cifar-10-batches-py")
    place.mkdir(parents=True)
    for part, names in NAMES.items():
        for name, photos in zip(names, np.split(PHOTOS[part], len(names)), strict=True):
            (place / (f"{name}.bin" if form == "bin" else name)).write_bytes(encode(photos))
    (place / "batches.meta").write_bytes(b"not read")
    return place


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with both data sets."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "mnist").mkdir()
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(DIGITS["train"])))
    (folder / "mnist" / "t10k-images-idx3-ubyte").write_bytes(idx(DIGITS["test"]))
    write_cifar(folder / "cifar10", "new")
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path, packed):
    path = tmp_path / "file"
    data = idx(DIGITS["test"])
    path.write_bytes(gzip.compress(data) if packed else data)
    np.testing.assert_array_equal(read_idx(path), DIGITS["test"])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x08\xc8" + b"\xff" * 2000,
        b"\0\0\x0d\x01\0\0\0\0",
        idx(DIGITS["test"])[:-1],
        gzip.compress(idx(DIGITS["test"]))[:-9],
    ],
)
def test_broken_idx_files_are_refused(tmp_path, data):
    path = tmp_path / "digits"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="digits") as error:
        read_idx(path)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("form", ["old", "new", "bin"])
def test_cifar(tmp_path, form, archive, part):
    path = write_cifar(tmp_path, form)
    if archive:
        with tarfile.open(tmp_path / "archive.tar.gz", "w:gz") as tar:
            for file in sorted(path.iterdir(), reverse=True):  # the official one is in no order either
                tar.add(file, f"{path.name}/{file.name}")
        path = tmp_path / "archive.tar.gz"
    np.testing.assert_array_equal(read_cifar(path, part), PHOTOS[part])


def test_batches_after_a_missing_one_are_not_used(tmp_path):
    path = write_cifar(tmp_path, "bin")
    (path / "data_batch_3.bin").unlink()
    np.testing.assert_array_equal(read_cifar(path, "train"), PHOTOS["train"][:24])
    (path / "data_batch_1.bin").unlink()
    with pytest.raises(ValueError, match="data_batch_1"):
        read_cifar(path, "train")


def test_png_sheets(tmp_path):
    for name, photos in zip(NAMES["train"][:2], np.split(PHOTOS["train"], 2), strict=True):
        Image.fromarray(photos.reshape(-1, 1024, 3)).save(tmp_path / f"{name}.png")
    Image.fromarray(PHOTOS["test"].reshape(-1, 1024, 3)).save(tmp_path / "cifar10_test_first2000.png")
    for part in ("train", "test"):
        np.testing.assert_array_equal(read_images("cifar10", part, tmp_path), PHOTOS[part])
    Image.fromarray(PHOTOS["test"][0]).save(tmp_path / "photo.png")
    with pytest.raises(ValueError, match="1024"):
        read_sheet(tmp_path / "photo.png")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


@pytest.mark.parametrize(
    "data", [pickle.dumps({b"data": Evil()}, 2), pickle.dumps({b"none": 1}, 2), pickle.dumps([1.5], 2), b"rubbish"]
)
def test_pickles_run_nothing(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_cifar(tmp_path, "new")
    (path / "test_batch").write_bytes(data)
    with pytest.raises(ValueError, match="not CIFAR-10"):
        read_cifar(path, "test")
    assert not (tmp_path / "evil").exists()


def test_other_broken_files_are_refused(tmp_path):
    path = write_cifar(tmp_path, "bin")
    (path / "test_batch.bin").write_bytes(b"x" * 3000)
    (tmp_path / "archive.tar.gz").write_bytes(b"x" * 3000)
    for file in (path, tmp_path / "archive.tar.gz"):
        with pytest.raises(ValueError, match="damaged"):
            read_cifar(file, "test")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(DIGITS["test"][:, 1:]))
    with pytest.raises(ValueError, match="mnist"):
        read_images("mnist", "train", tmp_path)


def test_damaged_pictures_are_one_sentence(tmp_path):
    path = tmp_path / "test_batch.png"
    Image.fromarray(PHOTOS["test"].reshape(-1, 1024, 3)).save(path)
    data = path.read_bytes()
    for content in (b"", data[:5000], data[:40] + b"?" + data[41:], idx(DIGITS["test"])):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"test_batch.png is damaged or not a PNG picture \(.+\): get it") as error:
            read_sheet(path)
        assert "\n" not in str(error.value)


def test_a_damaged_pickle_reserves_no_memory(tmp_path):
    path = write_cifar(tmp_path, "new")
    data = new_pickle(PHOTOS["test"])
    (path / "test_batch").write_bytes(data[:2] + b"}r\xff\xff\xff\x1f" + data[3:])  # a memo of half a billion entries
    tracemalloc.start()
    try:
        with suppress(ValueError):
            read_cifar(path, "test")
        assert tracemalloc.get_traced_memory()[1] < 1e8
    finally:
        tracemalloc.stop()


def test_missing_data_are_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train-images-idx3-ubyte is not in .*SHIFTNP_DATA") as error:
        ImageTask(path=tmp_path).sample(1, generator())
    assert "\n" not in str(error.value)


def test_a_part_of_the_data_is_announced_once(tmp_path, caplog):
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(DIGITS["test"]))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            ImageTask(split="test", path=tmp_path).sample(1, generator())
    (record,) = caplog.records
    assert "40 of 10000 test images" in record.message


def test_reports_say_how_many_images_there_are(small):
    train, test = (len(PHOTOS[part]) for part in ("train", "test"))
    expected = f"{train} of 50,000 train images, {test} of 10,000 test images of cifar10."
    assert ImageTask(dataset="cifar10", path=small).data == expected


def test_the_environment_names_a_folder(small, monkeypatch):
    monkeypatch.setenv("SHIFTNP_DATA", str(small))
    assert ImageTask(split="test").count == 40


# --- the task --------------------------------------------------------------------------------------------------------


def pixel_numbers(task, x):
    place = x.double() / task.pitch + (task.side - 1) / 2
    torch.testing.assert_close(place, place.round(), rtol=0, atol=1e-4)
    row, column = place.round().long().unbind(-1)
    return row * task.side + column


@pytest.mark.parametrize("translated", [False, True])
@pytest.mark.parametrize("dataset", DATASETS)
def test_context_and_targets_share_the_canvas_out(small, dataset, translated):
    task = ImageTask(dataset=dataset, translated=translated, path=small)
    assert task.side == {"mnist": 28, "cifar10": 32}[dataset] * (1 + translated)
    index = torch.tensor([3, 0, 41])
    batch = task.complete(index, generator())
    number = torch.cat([pixel_numbers(task, batch.xc), pixel_numbers(task, batch.xt)], 1)
    y = torch.cat([batch.yc, batch.yt], 1)
    assert y.dtype == batch.xc.dtype == torch.float32
    for i, canvas in enumerate(task.images(index).flatten(1, 2)):
        assert torch.equal(number[i].sort().values, torch.arange(task.side**2))
        assert torch.equal(y[i], canvas[number[i]])
    assert not torch.equal(number[0], number[1])  # every image has a context of its own


def test_number_of_context_pixels(small):
    task = ImageTask(path=small)
    g = generator()
    numbers = torch.tensor([task.sample(1, g).xc.shape[1] for _ in range(1500)]).double()
    assert numbers.min() >= math.ceil(784 / 100)
    assert numbers.max() <= math.floor(784 / 3)
    assert numbers.mean().item() == pytest.approx((8 + 261) / 2, abs=8)
    assert numbers.std().item() == pytest.approx(253 / math.sqrt(12), rel=0.06)


def test_context_pixels_are_anywhere(small):
    task = ImageTask(path=small, context=(0.25, 0.25), targets=1)
    g = generator()
    number = torch.cat([pixel_numbers(task, task.sample(50, g).xc).flatten() for _ in range(20)])
    share = number.bincount(minlength=784) / 1000
    assert (share - 0.25).abs().max() < 5 * math.sqrt(0.25 * 0.75 / 1000)


def test_inputs_are_standardised(small):
    for side in (28, 40, 64):
        x = pixel_grid(side).double()
        torch.testing.assert_close(x.mean(0), torch.zeros(2).double(), rtol=0, atol=1e-7)
        torch.testing.assert_close(x.var(0, correction=0), torch.ones(2).double(), rtol=0, atol=1e-6)
        pitch = ImageTask(canvas=side, path=small).pitch
        assert (x[1] - x[0]).tolist() == pytest.approx([0, pitch], abs=1e-6)
        assert (x[side] - x[0]).tolist() == pytest.approx([pitch, 0], abs=1e-6)


def test_an_on_grid_convcnp_finds_the_pixels(small):
    task = ImageTask(dataset="cifar10", path=small, targets=20)
    model = small_model("convcnp", dx=2, dy=3, on_grid=True, points_per_unit=1 / task.pitch)
    batch = task.sample(2, generator()).to(dtype=torch.float64)  # a shift in float32 would round the places anew
    here = model(batch.xc, batch.yc, batch.xt).mean
    assert here.isfinite().all()
    moved = batch.shift([3 * task.pitch, -5 * task.pitch])
    torch.testing.assert_close(model(moved.xc, moved.yc, moved.xt).mean, here, rtol=0, atol=1e-6)


@pytest.mark.parametrize("canvas", [None, 36])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("dataset", DATASETS)
def test_images_are_undamaged_and_all_else_is_black(small, dataset, split, canvas):
    task = ImageTask(dataset=dataset, translated=True, split=split, canvas=canvas, path=small)
    part = "test" if split == "test" else "train"
    originals = {"mnist": DIGITS[part][..., None], "cifar10": PHOTOS[part]}[dataset]
    first = len(originals) - len(originals) // 10 if split == "valid" else 0
    index = torch.arange(task.count)
    width = originals.shape[1]
    for i, canvas, (top, left) in zip(index, task.images(index), task.offsets(index), strict=True):
        crop = canvas[top : top + width, left : left + width]
        np.testing.assert_array_equal(crop, (originals[first + i] / 255).astype(np.float32))
        assert canvas.sum(dtype=torch.float64).item() == pytest.approx(crop.sum(dtype=torch.float64).item())
        assert crop.shape[:2] == (width, width)


def test_offsets_are_uniform():
    counts = []
    for part in ("train", "test"):
        offsets = translations(0, part, 60_000, 29)
        assert int(offsets.min()) == 0
        assert int(offsets.max()) == 28
        for column in offsets.T:
            counts.append(column.bincount(minlength=29).double())
            assert ((counts[-1] - 60_000 / 29) ** 2 / (60_000 / 29)).sum() < 60  # chi-squared, 28 degrees: p = 4e-4
        assert abs(np.corrcoef(offsets.T)[0, 1]) < 0.02  # down and across are independent
        assert abs(np.corrcoef(offsets[1:, 0], offsets[:-1, 0])[0, 1]) < 0.02  # and so are neighbours in the file
    assert len({tuple(c.tolist()) for c in counts}) == 4


def test_a_translation_belongs_to_its_image(small):
    task = ImageTask(translated=True, path=small)
    index = torch.arange(20)
    for same in (replace(task, limit=30), replace(task, targets=5), replace(task)):
        assert torch.equal(same.offsets(index), task.offsets(index))
    assert torch.equal(translations(0, "train", 10, 29), translations(0, "train", 999, 29)[:10])
    for other in (replace(task, seed=1), replace(task, split="valid"), replace(task, split="test")):
        assert not torch.equal(other.offsets(index), task.offsets(index))
    assert torch.equal(replace(task, translated=False, canvas=40).offsets(index), torch.full((20, 2), 6))


def test_splits_share_no_image(small):
    def pictures(task, batch):
        order = pixel_numbers(task, torch.cat([batch.xc, batch.xt], 1)).argsort(1)
        rows = torch.cat([batch.yc, batch.yt], 1)[..., 0].gather(1, order)
        return {tuple(row.tolist()) for row in rows}

    def contents(split):
        task = ImageTask(split=split, path=small)
        every = pictures(task, task.complete(torch.arange(task.count), generator()))
        assert pictures(task, task.sample(100, generator())) <= every
        return every

    train, valid, test = contents("train"), contents("valid"), contents("test")
    assert (len(train), len(valid), len(test)) == (180, 20, 40)
    assert train.isdisjoint(valid)
    assert (train | valid).isdisjoint(test)


def test_limits(small):
    task = ImageTask(path=small, limit=7, targets=11)
    assert task.count == 7
    assert task.sample(4, generator()).xt.shape == (4, 11, 2)
    assert ImageTask(path=small, limit=10_000).count == 180
    assert ImageTask(path=small, targets=10_000).sample(1, generator()).xt.shape[1] < 784
    with pytest.raises(ValueError, match="index"):
        task.complete(torch.tensor([7]), generator())


def test_batches_depend_on_the_generator_alone(small):
    task = ImageTask(translated=True, path=small)
    a, b, c = (task.sample(4, generator(seed)) for seed in (1, 1, 2))
    for name in ("xc", "yc", "xt", "yt"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert not torch.equal(a.yt[:, :50], c.yt[:, :50])
    torch.manual_seed(0)
    state = torch.get_rng_state()
    again = pickle.loads(pickle.dumps(task)).sample(4, generator(1))
    assert torch.equal(a.yt, again.yt)
    assert torch.equal(torch.get_rng_state(), state)  # nothing global is touched
    assert ImageTask(**asdict(task)) == task


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "imagenet"},
        {"split": "dev"},
        {"canvas": 27},
        {"limit": 0},
        {"targets": 0},
        {"context": (0.5, 0.1)},
        {"context": (0, 1)},
        {"context": (0.0001, 0.0002)},
    ],
)
def test_bad_settings_are_refused_by_name(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        ImageTask(**change)


def test_an_empty_split_is_refused(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(DIGITS["train"][:5]))
    with pytest.raises(ValueError, match="valid"):
        ImageTask(split="valid", path=tmp_path).sample(1, generator())


# --- test sets -------------------------------------------------------------------------------------------------------


def test_test_sets_are_the_first_images_each_once(small):
    sets = ImageTask(translated=True, path=small, limit=3, targets=5).test_sets()
    assert set(sets) == {"valid", "test"}
    test = replace(sets["test"], tasks=20, batch_size=16)
    batches = list(test)
    assert [len(b.yt) for b in batches] == [16, 4]
    assert batches[0].xc.shape[1] + batches[0].xt.shape[1] == 56**2
    for i, index in enumerate((range(16), range(16, 20))):
        seen = torch.cat([batches[i].yc, batches[i].yt], 1).sum((1, 2))
        torch.testing.assert_close(seen, test.task.images(torch.tensor(index)).sum((1, 2, 3)))
    for fewer, more in zip(replace(test, tasks=18), batches, strict=True):
        assert torch.equal(fewer.yt, more.yt[: len(fewer.yt)])
    assert torch.equal(next(iter(test)).yt, batches[0].yt)
    with pytest.raises(ValueError, match="tasks"):
        next(iter(sets["test"]))


def test_test_sets_are_the_same_on_every_machine(small):
    assert translations(0, "train", 3, 29).tolist() == [[6, 9], [9, 11], [8, 18]]
    assert translations(0, "test", 3, 29).tolist() == [[28, 23], [10, 2], [2, 12]]
    task = ImageTask(translated=True, path=small)
    batch = next(iter(replace(task.test_sets()["test"], tasks=2)))
    assert batch.xc.shape[1] == 428
    assert pixel_numbers(task, batch.xc)[:, :4].tolist() == [[1052, 2903, 3088, 545], [931, 666, 858, 1992]]


# --- real data -------------------------------------------------------------------------------------------------------


def real(dataset):
    for place in PLACES:
        if all(any((place / name).exists() for name in names) for names in DATASETS[dataset].files.values()):
            return place
    pytest.skip(f"no {dataset} in {' or '.join(map(str, PLACES))}")


@pytest.mark.parametrize("dataset", DATASETS)
def test_real_images(dataset):
    folder = real(dataset)
    about = DATASETS[dataset]
    mean = {"mnist": 0.1307, "cifar10": 0.473}[dataset]  # those of the whole data sets
    for split in ("train", "valid", "test"):
        task = ImageTask(dataset=dataset, translated=True, split=split, path=folder)
        assert 1000 <= task.count <= sum(about.counts.values())
        index = torch.arange(0, task.count, max(1, task.count // 500))
        canvases = task.images(index)
        assert canvases.min() == 0
        assert canvases.max() == 1
        assert 4 * canvases.mean().item() == pytest.approx(mean, abs=0.02)  # a quarter of the canvas is image
        batch = next(iter(replace(task.test_sets()["test"], tasks=16)))
        assert batch.yc.shape[-1] == about.channels
        assert len(batch.yt) == 4
    task = ImageTask(dataset=dataset, path=folder)
    images = task.images(torch.arange(50))
    across = (images[:, :, 1:] - images[:, :, :-1]).abs().mean()
    shuffled = images.flatten(1, 2)[:, torch.randperm(task.side**2, generator=generator())].unflatten(
        1, images.shape[1:3]
    )
    assert across < 0.6 * (shuffled[:, :, 1:] - shuffled[:, :, :-1]).abs().mean()  # pixels are where they belong


# --- pictures --------------------------------------------------------------------------------------------------------


def guess(batch):
    return Independent(Normal(torch.full_like(batch.yt, 0.5), 0.1 + batch.yt), 1)


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_strip_shows_context_truth_mean_and_std(small, tmp_path, dataset):
    task = ImageTask(dataset=dataset, translated=True, path=small)
    index = torch.tensor([3, 8])
    batch = task.complete(index, generator())
    figure = task.draw(batch, guess(batch), index=1)
    figure.savefig(tmp_path / "strip.png")
    context, truth, mean, std = (np.asarray(ax.images[0].get_array()) for ax in figure.axes[:4])
    canvas = task.images(index)[1].expand(-1, -1, 3).numpy()
    np.testing.assert_allclose(truth, canvas)
    known = ~(context == UNSEEN).all(-1)
    assert known.sum() == batch.xc.shape[1]
    np.testing.assert_allclose(context[known], canvas[known])
    np.testing.assert_allclose(mean[known], canvas[known])
    assert (mean[~known] == 0.5).all()
    assert (std[known] == 0).all()
    np.testing.assert_allclose(std[~known], 0.1 + canvas[~known].mean(-1), rtol=1e-5)
    assert len(task.draw(batch).axes) == 2


def test_padding_and_missing_targets_are_not_drawn(small):
    task = ImageTask(path=small, targets=30)
    short, long = task.sample(1, generator(1)), task.sample(1, generator(2))
    batch = Batch.collate([short, long])
    figure = task.draw(batch, guess(batch), index=0)
    truth = np.asarray(figure.axes[1].images[0].get_array())
    assert (~(truth == UNSEEN).all(-1)).sum() == short.xc.shape[1] + 30


def test_several_strips_and_points_off_the_canvas(small):
    task = ImageTask(path=small)
    batch = task.sample(3, generator())
    figure = task.draw(batch)
    figure.clear()
    draw_completions(figure, batch, task.side, task.pitch, guess(batch), [0, 2])
    assert len(figure.axes) == 9  # two strips and a scale
    with pytest.raises(ValueError, match="canvas"):
        task.draw(batch.shift(1))
