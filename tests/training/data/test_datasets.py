"""Data sets: what they hold, in which order they come, and what is refused."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from splinecut.errors import InputError
from splinecut.training.data import DATA, StreamedSplit, TensorSplit, load
from splinecut.training.data import streamed_split as streamed
from splinecut.training.data import toy as toys
from splinecut.training.data.batch_order import Order
from splinecut.training.data.dataset import held_out
from splinecut.training.data.huggingface import read_hub
from splinecut.training.data.transforms import Augmentation, Pixels, measured, shift_and_mirror
from splinecut.training.seeding import generator

few = settings(derandomize=True, deadline=None, max_examples=40)
CLASSES = ("cat", "dog", "emu")


def picture(seed: int, size: tuple[int, int] = (6, 5), grey: bool = False) -> Image.Image:
    shape = size[::-1] if grey else (*size[::-1], 3)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def encoded(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def write_parquet(path: Path, images: list[bytes], labels: list[int], label: str = "label") -> None:
    table = pa.table({"image": [{"bytes": image, "path": None} for image in images], label: labels})
    features = {"image": {"_type": "Image"}, label: {"_type": "ClassLabel", "names": list(CLASSES)}}
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def write_folders(root: Path, splits: dict[str, int], size: tuple[int, int] = (6, 5)) -> None:
    """`n` images of each class in each split; image numbers start anew in every split."""
    for split, n in splits.items():
        for label, name in enumerate(CLASSES):
            (root / split / name).mkdir(parents=True)
            for row in range(n):
                picture(100 * label + row, size).save(root / split / name / f"{row}.png")


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    write_folders(tmp_path / "pets", {"train": 10, "test": 4})
    return tmp_path


@pytest.fixture
def images() -> TensorSplit:
    values = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8, generator=generator(1))
    return TensorSplit(values, torch.arange(50), Pixels((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)), augmentation=Augmentation())


def epoch(split, **options) -> list[tuple[torch.Tensor, torch.Tensor]]:
    apart = {key: options.pop(key) for key in ("augment", "device", "channels_last") if key in options}
    return list(split.batches(Order(16, **{"shuffle": True, "seed": 3, "epoch": 5, **options}), **apart))


def same(left, right) -> bool:
    return all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(left, right, strict=True))


# --- the order of batches -----------------------------------------------------------------------------------------


def test_an_epoch_shows_every_row_once_in_an_order_set_by_seed_and_epoch(images) -> None:
    rows = [torch.cat([y for _, y in epoch(images, seed=s, epoch=e)]) for s, e in [(3, 5), (3, 5), (3, 6), (4, 5)]]
    assert all(torch.equal(order.sort().values, torch.arange(50)) for order in rows)
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])
    assert not torch.equal(rows[0], rows[3])


def test_evaluation_shows_the_rows_as_stored(images) -> None:
    batches = epoch(images, shuffle=False)
    assert torch.equal(torch.cat([y for _, y in batches]), torch.arange(50))
    torch.testing.assert_close(torch.cat([x for x, _ in batches]), images.examples(list(range(50))))


def test_skipping_batches_gives_the_tensors_of_an_unbroken_epoch(images) -> None:
    assert same(epoch(images)[2:], epoch(images, skip=2))


@pytest.mark.parametrize("world", [2, 3])
def test_processes_together_see_what_one_process_sees(images, world: int) -> None:
    shares = [epoch(images, rank=rank, world=world) for rank in range(world)]
    for number, (x, y) in enumerate(epoch(images)):
        for rank in range(world):
            parts = shares[rank][number : number + 1]
            assert same(parts, [(x[rank::world], y[rank::world])] if len(y[rank::world]) else [])


def test_the_global_random_state_is_left_alone(images) -> None:
    before = torch.get_rng_state()
    epoch(images)
    assert torch.equal(before, torch.get_rng_state())


def test_training_without_augmentation_shows_the_stored_images(images) -> None:
    for x, y in epoch(images, augment=False):
        torch.testing.assert_close(x, images.examples(y))
    assert not same(epoch(images, augment=False), epoch(images))


def test_batches_come_in_the_layout_asked_for(images) -> None:
    plain, last = epoch(images), epoch(images, channels_last=True)
    assert same(plain, last)
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x, _ in last)


# --- pixels -------------------------------------------------------------------------------------------------------


@few
@given(st.integers(0, 8), st.integers(0, 8), st.booleans(), st.integers(0, 99))
def test_a_shift_is_a_crop_of_the_padded_image(top: int, left: int, mirrored: bool, seed: int) -> None:
    image = torch.randint(0, 256, (3, 6, 7), dtype=torch.uint8, generator=generator(seed))
    padded = np.pad(image.numpy(), ((0, 0), (4, 4), (4, 4)))
    expected = padded[:, top : top + 6, left : left + 7]
    expected = expected[:, :, ::-1] if mirrored else expected
    shifted = shift_and_mirror(image[None], torch.tensor([top]), torch.tensor([left]), torch.tensor([mirrored]), 4)
    assert np.array_equal(shifted[0].numpy(), expected)


def test_augmentation_uses_every_shift_and_both_sides(images) -> None:
    # One bright pixel in the middle of the left half: where it lands shows which shift and side were drawn.
    dot = torch.zeros(4000, 1, 9, 9, dtype=torch.uint8)
    dot[:, 0, 4, 4] = 255
    split = TensorSplit(dot, torch.arange(4000), Pixels((0.0,), (1.0,)), augmentation=Augmentation())
    (x, _), *_ = split.batches(Order(4000, shuffle=True))
    landed = x.flatten(1).argmax(1)
    assert len(landed.unique()) == 81
    assert torch.bincount(landed).float().std() < 0.2 * 4000 / 81 + 5


def test_digits_are_shifted_but_never_mirrored() -> None:
    assert load("digits").train.augmentation == Augmentation(padding=1, mirror=False)
    image = torch.arange(1, 65, dtype=torch.uint8).view(1, 1, 8, 8)
    for seed in range(20):
        moved = Augmentation(1, mirror=False)(image, generator(seed))
        assert moved[0, 0, 4, 3] < moved[0, 0, 4, 4]


def test_normalising_is_the_formula(images) -> None:
    x = images.examples([7])
    for channel, (mean, std) in enumerate(zip((0.4, 0.5, 0.6), (0.2, 0.3, 0.4), strict=True)):
        expected = (images.inputs[7, channel].double() / 255 - mean) / std
        torch.testing.assert_close(x[0, channel].double(), expected, atol=1e-5, rtol=0)


def test_measured_pixels_have_mean_zero_and_deviation_one(images) -> None:
    seen = measured(images.inputs).normalise(images.inputs).double()
    torch.testing.assert_close(seen.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-4, rtol=0)
    torch.testing.assert_close(seen.std((0, 2, 3), correction=0), torch.ones(3).double(), atol=1e-4, rtol=0)


def test_a_black_channel_is_normalised_to_zero_not_to_nan() -> None:
    black = torch.zeros(4, 1, 3, 3, dtype=torch.uint8)
    assert (measured(black).normalise(black) == 0).all()


# --- splits -------------------------------------------------------------------------------------------------------


@few
@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.floats(0, 0.99), st.integers(0, 9))
def test_held_out_rows_are_the_asked_share_of_every_class(labels: list[int], share: float, seed: int) -> None:
    targets = torch.tensor(labels)
    kept, held = held_out(targets, share, seed)
    assert len(held) == round(share * len(labels))
    assert torch.equal(torch.cat([kept, held]).sort().values, torch.arange(len(labels)))
    for label in set(labels):
        assert abs((targets[held] == label).sum() - share * labels.count(label)) < 1 + 1e-9


def test_a_seed_moves_the_validation_rows_and_nothing_else() -> None:
    one, other = load("digits", seed=1), load("digits", seed=2)
    assert one.hash == other.hash
    assert torch.equal(one.test.inputs, other.test.inputs)
    assert not torch.equal(one.validation.inputs, other.validation.inputs)
    assert len(one.train) + len(one.validation) + len(one.test) == 1797


def test_a_training_sample_has_the_asked_size_and_leaves_validation_and_test_alone() -> None:
    whole, part = load("digits"), load("digits", train_size=200)
    assert len(part.train) == 200
    assert torch.bincount(part.train.targets).min() >= 19
    assert torch.equal(whole.validation.inputs, part.validation.inputs)
    assert torch.equal(whole.test.inputs, part.test.inputs)


def test_digits_are_scaled_by_their_sixteen_levels() -> None:
    digits = load("digits", validation=0)
    assert digits.input_shape == (1, 8, 8)
    assert digits.train.inputs.max() == 16
    assert digits.train.examples(torch.arange(len(digits.train))).std() == pytest.approx(1, abs=1e-3)
    assert len(digits.validation) == 0


# --- generated sets -----------------------------------------------------------------------------------------------


def test_x_shape_is_cut_by_the_two_diagonals() -> None:
    data = load("x-shape")
    assert [len(split) for split in (data.train, data.validation, data.test)] == [1440, 160, 400]
    x, y = data.train.inputs.T
    assert torch.equal(data.train.targets, ((y > x) == (y > -x)).long())
    assert data.train.inputs.abs().max() <= 5


def test_sawtooth_is_what_four_relu_units_give() -> None:
    data = load("sawtooth")
    cuts, outgoing = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, -2.0, 2.0, -2.0])
    expected = torch.relu(data.train.inputs - cuts) @ outgoing[:, None]
    torch.testing.assert_close(data.train.targets, expected, atol=1e-5, rtol=0)
    assert (data.task, data.outputs, data.classes) == ("regression", 1, 0)


def test_sawtooth_has_as_many_teeth_as_asked() -> None:
    x, height = toys.sawtooth(generator(0), points=5000, peaks=3)
    assert x.max() <= 7
    assert [round(height[(x - tooth).abs().argmin()].item(), 1) for tooth in range(8)] == [0, 0, 1, 0, 1, 0, 1, 0]


def test_gaussian_mixture_lies_around_its_grid() -> None:
    data = load("gaussian-mixture")
    points, centres = data.train.inputs, data.train.targets
    grid = torch.stack([centres % 8, centres // 8], dim=1) - 3.5
    assert (points - grid).std().item() == pytest.approx(0.1, rel=0.05)
    assert torch.bincount(centres).tolist() == [72] * 64


# --- folders ------------------------------------------------------------------------------------------------------


def test_class_folders_and_parquet_of_the_same_images_are_the_same_set(folders: Path) -> None:
    for split, n in [("train", 10), ("test", 4)]:
        numbers = [100 * label + row for label in range(3) for row in range(n)]
        labels = [number // 100 for number in numbers]
        images = [encoded(picture(number)) for number in numbers]
        write_parquet(folders / "table" / f"{split}-00000-of-00001.parquet", images, labels)
    by_folder, by_table = load("pets", folders), load("table", folders)
    assert by_folder.hash == by_table.hash
    assert by_folder.class_names == by_table.class_names == CLASSES
    assert by_folder.input_shape == (3, 5, 6)
    row = by_table.train.inputs[by_table.train.targets == 1][0]
    assert any(np.array_equal(row.permute(1, 2, 0).numpy(), np.asarray(picture(100 + n))) for n in range(10))


def test_the_environment_names_the_folder_too(folders: Path, monkeypatch) -> None:
    monkeypatch.setenv("SPLINECUT_DATA", str(folders))
    assert len(load("pets").test) == 12


def test_a_path_is_a_name(folders: Path) -> None:
    assert load(str(folders / "pets")).name == "pets"


def test_a_changed_pixel_changes_the_hash(folders: Path) -> None:
    before = load("pets", folders).hash
    picture(999).save(folders / "pets" / "test" / "cat" / "0.png")
    assert load("pets", folders).hash != before


def test_validation_stands_in_for_a_missing_test_split(tmp_path: Path) -> None:
    write_folders(tmp_path / "pets", {"train": 10, "val": 2})
    data = load("pets", tmp_path)
    assert [len(split) for split in (data.train, data.validation, data.test)] == [27, 3, 6]


def test_stored_validation_rows_are_used_as_they_are(tmp_path: Path) -> None:
    write_folders(tmp_path / "pets", {"train": 10, "validation": 3, "test": 2})
    data = load("pets", tmp_path)
    assert [len(split) for split in (data.train, data.validation, data.test)] == [30, 9, 6]


def test_unlabelled_test_images_do_not_count_as_a_test_split(tmp_path: Path) -> None:
    for split, labels in {"train": [0, 1, 2], "validation": [0, 1, 2], "test": [-1]}.items():
        write_parquet(tmp_path / "set" / f"{split}.parquet", [encoded(picture(n)) for n in range(len(labels))], labels)
    assert load("set", tmp_path, validation=0).test.targets.tolist() == [0, 1, 2]


def test_grey_images_have_one_channel(tmp_path: Path) -> None:
    for split in ("train", "test"):
        images = [encoded(picture(n, grey=True)) for n in range(3)]
        write_parquet(tmp_path / "set" / f"{split}.parquet", images, [0, 1, 2])
    data = load("set", tmp_path, validation=0)
    assert data.input_shape == (1, 5, 6)
    assert np.array_equal(data.train.inputs[1, 0].numpy(), np.asarray(picture(1, grey=True)))


def test_labels_given_as_words_are_numbered(tmp_path: Path) -> None:
    for split in ("train", "test"):
        table = pa.table({"img": [encoded(picture(n)) for n in range(3)], "label": ["b", "a", "b"]})
        (tmp_path / "set").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "set" / f"{split}.parquet")
    data = load("set", tmp_path, validation=0)
    assert (data.class_names, data.train.targets.tolist()) == (("a", "b"), [1, 0, 1])


def _remove_test(root: Path) -> None:
    (root / "test").rename(root / "other")


def _break_image(root: Path) -> None:
    (root / "train" / "dog" / "3.png").write_bytes(b"no image at all")


def _truncate_image(root: Path) -> None:
    file = root / "test" / "dog" / "3.png"
    file.write_bytes(file.read_bytes()[:60])


def _empty_class(root: Path) -> None:
    (root / "train" / "fox").mkdir()


def _extra_class(root: Path) -> None:
    (root / "test" / "dig").mkdir()


def _no_split(root: Path) -> None:
    write_parquet(root / "pictures.parquet", [encoded(picture(0))], [0])


def _no_label(root: Path) -> None:
    write_parquet(root / "train.parquet", [encoded(picture(0))], [0], label="weight")


def _broken_parquet(root: Path) -> None:
    (root / "train.parquet").write_bytes(b"PAR1 but not really")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_remove_test, "got splits: train"),
        (_break_image, "train/dog/3.png: not an image"),
        (_truncate_image, "test/dog/3.png"),
        (_empty_class, "class 'fox' of pets has no training images"),
        (_extra_class, "did you mean 'dog'"),
        (_no_split, "name parquet files train-*"),
        (_no_label, "no label column in pets: expected one of label"),
        (_broken_parquet, "train.parquet"),
    ],
)
def test_a_damaged_set_is_refused_in_one_line_that_names_the_place(folders: Path, damage, says: str) -> None:
    damage(folders / "pets")
    with pytest.raises(InputError) as caught:
        load("pets", folders)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "cifar11"}, "did you mean 'cifar10'"),
        ({"name": "digits", "validation": 1.0}, "validation must be in [0, 1)"),
        ({"name": "digits", "train_size": 5000}, "train_size must be from 1 to 1294"),
        ({"name": "digits", "image_size": 32}, "digits has inputs of shape (1, 8, 8)"),
        ({"name": "cifar10", "data_dir": "/no/such/folder"}, "data folder /no/such/folder does not exist"),
        ({"name": "./no-such-folder"}, "data folder ./no-such-folder does not exist"),
    ],
)
def test_a_bad_request_is_answered_in_one_line(arguments: dict, says: str, monkeypatch) -> None:
    monkeypatch.delenv("SPLINECUT_DATA", raising=False)
    with pytest.raises(InputError) as caught:
        load(**arguments)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(folders: Path) -> None:
    closed = folders / "pets" / "train" / "dog"
    closed.chmod(0)
    try:
        with pytest.raises(InputError, match="train/dog: Permission denied"):
            load("pets", folders)
    finally:
        closed.chmod(0o755)


# --- the Hub ------------------------------------------------------------------------------------------------------


def test_a_hub_set_is_read_through_its_library(monkeypatch) -> None:
    import datasets

    features = datasets.Features({"img": datasets.Image(), "fine_label": datasets.ClassLabel(names=list(CLASSES))})
    rows = {"img": [picture(n) for n in range(3)], "fine_label": [2, 0, 1]}
    part = datasets.Dataset.from_dict(rows, features=features)
    asked = []

    def fetch(*name: str):
        asked.append(name)
        return datasets.DatasetDict({"train": part, "test": part, "extra": part})

    monkeypatch.setattr(datasets, "load_dataset", fetch)
    found = read_hub("owner/name/small")
    assert asked == [("owner/name", "small")]
    assert found.class_names == CLASSES
    assert sorted(found.splits) == ["test", "train"]
    assert found.splits["train"].labels.tolist() == [2, 0, 1]
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(found.splits["train"].images[1]))), np.asarray(picture(1)))


def test_without_a_network_the_remedy_is_a_folder(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://localhost:9")
    monkeypatch.setattr("splinecut.training.data.huggingface.getproxies", dict)
    with pytest.raises(InputError, match="--data-dir or SPLINECUT_DATA") as caught:
        load("owner/no-such-set", tmp_path)
    assert "\n" not in str(caught.value)


# --- streamed sets ------------------------------------------------------------------------------------------------


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    write_folders(tmp_path / "pets", {"train": 6, "test": 2}, size=(40, 30))
    picture(7, (33, 51)).save(tmp_path / "pets" / "train" / "cat" / "0.png")
    picture(8, (20, 20), grey=True).save(tmp_path / "pets" / "train" / "dog" / "0.png")
    return tmp_path


def test_images_of_many_sizes_are_streamed_and_cropped(photographs: Path) -> None:
    data = load("pets", photographs, image_size=16, workers=0)
    assert isinstance(data.train, StreamedSplit)
    assert data.input_shape == (3, 16, 16)
    (x, y), *_ = data.test.batches(Order(6, shuffle=False))
    assert x.shape == (6, 3, 16, 16)
    assert y.tolist() == [0, 0, 1, 1, 2, 2]
    assert load("pets", photographs, workers=0).input_shape == (3, 224, 224)


def test_small_images_are_streamed_when_another_size_is_asked_for(folders: Path) -> None:
    assert isinstance(load("pets", folders).train, TensorSplit)
    assert load("pets", folders, image_size=12, workers=0).input_shape == (3, 12, 12)


@pytest.mark.parametrize("odd", [0, 150, 151])
def test_one_image_of_another_size_makes_a_set_streamed(folders: Path, odd: int) -> None:
    for row in range(300):
        picture(row).save(folders / "pets" / "train" / "cat" / f"{row}.png")
    picture(0, (9, 9)).save(folders / "pets" / "train" / "cat" / f"{odd}.png")
    assert isinstance(load("pets", folders, workers=0).train, StreamedSplit)


def test_streamed_batches_depend_on_seed_epoch_and_row_only(photographs: Path) -> None:
    train = load("pets", photographs, image_size=16, workers=0).train
    walk = lambda **options: list(train.batches(Order(4, **{"shuffle": True, "seed": 1, "epoch": 2, **options})))  # noqa: E731
    before = torch.get_rng_state()
    whole = walk()
    assert torch.equal(before, torch.get_rng_state())
    assert same(whole, walk())
    assert same(whole[2:], walk(skip=2))
    assert same([(x[1::2], y[1::2]) for x, y in whole], walk(rank=1, world=2))
    assert not same(whole[:1], walk(epoch=3)[:1])


def test_worker_processes_change_nothing_but_the_time(photographs: Path) -> None:
    alone, helped = (load("pets", photographs, image_size=16, workers=workers) for workers in (0, 2))
    assert alone.hash == helped.hash
    assert same(*(each.train.batches(Order(4, shuffle=True)) for each in (alone, helped)))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_streamed_image_is_named_in_one_line(photographs: Path, workers: int) -> None:
    data = load("pets", photographs, image_size=16, workers=workers)
    (photographs / "pets" / "test" / "emu" / "1.png").write_bytes(b"broken")
    with pytest.raises(InputError) as caught:
        list(data.test.batches(Order(2, shuffle=False)))
    assert "test/emu/1.png: not an image" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_centre_crop_is_the_middle_of_the_resized_image(photographs: Path) -> None:
    test = load("pets", photographs, image_size=21, workers=0).test
    image = Image.open(photographs / "pets" / "test" / "cat" / "0.png")
    resized = np.asarray(image.resize((32, 24), Image.Resampling.BILINEAR))  # 24 = 21 x 256 / 224
    crop = streamed.centre_crop(test.images, 0, 3, 21)
    assert np.array_equal(crop.permute(1, 2, 0).numpy(), resized[2:23, 6:27])


@few
@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 1000))
def test_random_crops_lie_inside_the_image(width: int, height: int, seed: int) -> None:
    left, top, across, down = streamed._random_box(width, height, np.random.default_rng(seed))
    assert left >= 0 and top >= 0 and across > 0 and down > 0
    assert left + across <= width and top + down <= height


def test_random_crops_have_the_areas_and_shapes_of_the_standard_recipe() -> None:
    rng = np.random.default_rng(0)
    boxes = np.array([streamed._random_box(400, 400, rng)[2:] for _ in range(2000)], dtype=float)
    area, aspect = boxes.prod(1) / 400**2, boxes[:, 0] / boxes[:, 1]
    assert 0.075 < area.min() < 0.1 and 0.95 < area.max() <= 1
    assert aspect.min() > 0.74 and aspect.max() < 1.36
    assert np.log(aspect).mean() == pytest.approx(0, abs=0.01)


# --- real sets ----------------------------------------------------------------------------------------------------

REAL = os.environ.get("SPLINECUT_DATA")
needs_real = pytest.mark.skipif(not REAL, reason="SPLINECUT_DATA names no folder with the real sets")


@needs_real
@pytest.mark.parametrize(("name", "shape", "classes"), [("cifar10", (3, 32, 32), 10), ("mnist", (1, 28, 28), 10)])
def test_real_sets_are_balanced_and_normalised(name: str, shape: tuple, classes: int) -> None:
    if not (Path(REAL) / name).is_dir():
        pytest.skip(f"no {name} in SPLINECUT_DATA")
    data = load(name)
    assert (data.input_shape, data.classes) == (shape, classes)
    for split in (data.train, data.validation, data.test):
        share = torch.bincount(split.targets, minlength=classes) / len(split)
        assert (share - 1 / classes).abs().max() < 0.03
    seen = data.test.examples(torch.arange(1000))
    assert abs(seen.mean()) < 0.1
    assert abs(seen.std() - 1) < 0.3


@needs_real
def test_a_real_image_folder_is_read() -> None:
    if not (Path(REAL) / "tiny-imagenet-10").is_dir():
        pytest.skip("no tiny-imagenet-10 in SPLINECUT_DATA")
    data = load("tiny-imagenet-10")
    assert (data.input_shape, data.classes, len(data.test)) == (((3, 64, 64)), 10, 150)


def test_every_listed_set_has_a_line_about_it() -> None:
    assert all(about and "\n" not in about for about in DATA.values())
