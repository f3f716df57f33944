"""What a stream of images accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from dota_clip.data.image_stream import ImageItem, ImageStream, read_classnames, require_files

ITEM = ImageItem(Path("a.png"), 0, "a.png")


@pytest.mark.parametrize("label", [2, -1])
def test_a_label_outside_the_classes_names_item_and_value(label: int) -> None:
    items = [ITEM, ImageItem(Path("b.png"), label, "birds/b.png")]
    with pytest.raises(ValueError, match=rf"birds/b\.png: label {label} is outside 0\.\.1 \(2 class names\)"):
        ImageStream(("cat", "dog"), items)


def test_a_stream_without_images_or_with_doubled_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="no image"):
        ImageStream(("cat",), [])
    with pytest.raises(ValueError, match="'cat' given more than once"):
        ImageStream(("cat", "cat"), [ITEM])


def test_classes_told_apart_by_identifier_may_share_a_name() -> None:
    stream = ImageStream(("missile", "missile"), [ITEM], "imagenet", ("n03773504", "n04008634"))
    assert stream.classnames == ("missile", "missile")
    with pytest.raises(ValueError, match=r"identifiers must be unique.*n1"):
        ImageStream(("a", "b"), [ITEM], "imagenet", ("n1", "n1"))
    with pytest.raises(ValueError, match="one per name"):
        ImageStream(("a", "b"), [ITEM], "imagenet", ("n1",))


def test_labels_may_be_unknown() -> None:
    stream = ImageStream(("cat",), [ITEM, ImageItem(Path("b.png"), None, "b.png")])
    assert stream.labels == [0, None]
    assert stream.has_labels
    assert len(stream) == 2
    assert not ImageStream(("cat",), [ImageItem(Path("b.png"), None, "b.png")]).has_labels


def test_missing_files_are_named_together_with_their_number(tmp_path: Path) -> None:
    (tmp_path / "0.png").touch()
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    with pytest.raises(FileNotFoundError, match=r"list: 5 of 6 image files are missing: .*1\.png, .*3\.png and 2 more"):
        require_files(paths, "list")
    require_files(paths[:1], "list")


def test_class_names_are_read_one_per_line(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_text("cat\n hot dog \n\n")
    assert read_classnames(file) == ("cat", "hot dog")


@pytest.mark.parametrize(
    ("content", "message"), [("", "at least one name"), ("a\n\nb", "position 1 is empty"), ("a\na", "'a' given more")]
)
def test_a_bad_class_list_names_its_file(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "names.txt"
    file.write_text(content)
    with pytest.raises(ValueError, match=rf"names\.txt: .*{message}"):
        read_classnames(file)
