"""One table and one self-contained page out of real result files."""

import struct
import zlib

import pytest

from gallery import main
from nips_common.claims import Claim, Reproduction, Table


def png() -> bytes:
    """A white picture of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\xff")) + chunk(b"IEND", b"")
    )


@pytest.fixture
def folder(tmp_path):
    """The results of one package, as `nox -s reproduce` leaves them."""
    claims = (
        Claim.judge("adapted beats zero-shot", "accuracy", [70.0, 72.0], [75.0, 76.0], 2.0),
        Claim("needs <data>", "accuracy", None, None, 1.0, reason="the asset mnist is missing"),
    )
    table = Table("All & more", ("row", "value"), (("clean", 97.66),))
    result = Reproduction(
        "some-method", "A method", claims, (table,), ("A note.",), ("plot.png",), 3.2, "quick", {"seeds": 2}
    )
    (tmp_path / "some-method").mkdir()
    (tmp_path / "some-method/plot.png").write_bytes(png())
    result.to_json(tmp_path / "some-method/reproduction.json")
    return tmp_path


def test_the_table_names_baseline_ours_spread_and_verdict(folder, capsys):
    assert main(["--folder", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == [
        *["some-method", "adapted", "beats", "zero-shot", "[accuracy]", "71.00", "75.50"],
        *["75.00..76.00", "(sd", "0.71,", "n", "2)", "holds"],
    ]
    assert "not run" in lines[3]
    assert max(map(len, lines)) <= 130


def test_the_page_carries_everything_inside(folder):
    main(["--folder", str(folder)])
    text = (folder / "index.html").read_text()
    assert 'src="data:image/png;base64,iVBORw0KGgo' in text
    assert "http" not in text
    assert "<script" not in text
    assert "<link" not in text
    assert "needs &lt;data&gt;" in text
    assert "All &amp; more" in text
    assert "prefers-color-scheme: dark" in text


def test_names_limit_the_page(folder, capsys):
    with pytest.raises(FileNotFoundError, match=r"other/reproduction\.json"):
        main(["other", "--folder", str(folder)])


def test_without_results_the_command_that_makes_them_is_named(tmp_path):
    with pytest.raises(ValueError, match="`nox -s reproduce` writes them"):
        main(["--folder", str(tmp_path)])
