"""PNG images of screens made small: of 256 colours, which pictures of pages and plots hardly exceed."""

import collections
import pathlib
import struct
import zlib


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _rows(data):
    """The rows of an image of 8 bits a channel, with and without alpha, and the bytes of a pixel."""
    at, parts = 8, []
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        at += 12 + size
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and not interlaced
        elif kind == b"IDAT":
            parts.append(body)
    pixel = 3 if colour == 2 else 4
    raw, stride = zlib.decompress(b"".join(parts)), width * pixel
    rows, before = [], bytes(stride)
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        if kind == 2:
            row = bytearray((a + b) & 255 for a, b in zip(row, before))
        elif kind:
            for i in range(stride):
                left, up, corner = (row[i - pixel] if i >= pixel else 0), before[i], (before[i - pixel] if i >= pixel else 0)
                if kind == 1:
                    guess = left
                elif kind == 3:
                    guess = (left + up) // 2
                else:
                    p = left + up - corner
                    guess = min((left, up, corner), key=lambda x: abs(p - x))
                row[i] = (row[i] + guess) & 255
        rows.append(row)
        before = row
    return rows, pixel


def make_small(path):
    """Rewrites the image: its 256 most frequent colours, and for others the nearest of them."""
    path = pathlib.Path(path)
    rows, pixel = _rows(path.read_bytes())
    pictures = [[bytes(row[i:i + 3]) for i in range(0, len(row), pixel)] for row in rows]
    counts = collections.Counter()
    for row in pictures:
        counts.update(row)
    palette = [colour for colour, _ in counts.most_common(256)]
    number = {colour: i for i, colour in enumerate(palette)}
    for colour in counts:
        if colour not in number:
            number[colour] = min(range(len(palette)), key=lambda i: sum((a - b) ** 2 for a, b in zip(palette[i], colour)))
    raw = b"".join(b"\0" + bytes(number[colour] for colour in row) for row in pictures)
    header = struct.pack(">IIBBBBB", len(pictures[0]), len(pictures), 8, 3, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"PLTE", b"".join(palette))
                     + _chunk(b"IDAT", zlib.compress(raw, 9)) + _chunk(b"IEND", b""))
