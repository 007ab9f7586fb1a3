"""What tools return: blocks, bytes, hints and attachments. Texts and lists: test_references."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from tailrace.core.errors import InvalidToolOutput
from tailrace.core.items import (
    Data,
    File,
    FilePart,
    Image,
    ImageUrl,
    ImageUrlPart,
    ReferenceToBlock,
    Refusal,
    Text,
    TextPart,
)
from tailrace.core.tool_output import ToolOutput, file, image, tool_output

PNG = b"\x89PNG\r\n\x1a\n and so on"
PNG_URL = f"data:image/png;base64,{b64encode(PNG).decode()}"


def test_an_image_is_an_image_on_both_sides_and_one_reference() -> None:
    url = ImageUrl(url=PNG_URL)
    expected = ToolOutput([ImageUrlPart(image_url=url, id=1)], [Image(image_url=url, id=1)])
    assert tool_output(image(PNG)) == expected
    assert tool_output(PNG) == expected
    assert tool_output(bytearray(PNG)) == expected
    assert tool_output(expected) is expected


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\n\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7", "application/pdf"),
        (b"plain", "application/octet-stream"),
    ],
)
def test_the_type_of_bytes_is_read_from_their_first_ones(data: bytes, mime_type: str) -> None:
    (block,) = tool_output(data).block_list
    url = block.image_url.url if isinstance(block, Image) else getattr(block, "url", "")
    assert url.startswith(f"data:{mime_type};base64,")


def test_a_file_has_a_name_a_type_and_a_size() -> None:
    made = file("täxt", "a.txt")
    assert made.url == "data:text/plain;base64," + b64encode("täxt".encode()).decode()
    assert (made.name, made.mime_type, made.size) == ("a.txt", "text/plain", 5)
    assert file(b"{}", media_type="application/json").mime_type == "application/json"
    (part,) = tool_output(made).message_content
    assert part == FilePart(url=made.url, mime_type="text/plain", name="a.txt", id=1)


def test_bytes_of_an_unknown_image_need_a_type() -> None:
    with pytest.raises(InvalidToolOutput, match="media_type"):
        image(b"svg")
    made = image(b"<svg/>", "image/svg+xml")
    assert made.image_url.url.startswith("data:image/svg+xml;base64,")


def test_a_list_with_blocks_in_it_is_one_reference() -> None:
    citation = ReferenceToBlock(reference_id=1, start_index=0, end_index=1)
    made = tool_output(
        [
            "a text",
            image(PNG),
            {"any": "JSON"},
            Text(text="nul\x00", annotations=[citation]),
            Data(data={"a": 1}, name="x"),
            Refusal(refusal="no"),
        ]
    )
    assert made.block_list == [
        Text(text="a text", id=1),
        Image(image_url=ImageUrl(url=PNG_URL), id=1),
        Text(text='{"any":"JSON"}', id=1),
        Text(text="nul\ufffd", id=1),
        Data(data={"a": 1}, name="x", id=1),
        Refusal(refusal="no"),
    ]
    assert [type(part) for part in made.message_content] == [
        *(TextPart, ImageUrlPart, TextPart, TextPart, TextPart, TextPart)
    ]


def test_a_list_without_blocks_is_json() -> None:
    assert tool_output([1, "a"]).message_content == [TextPart(text='[1,"a"]', id=1)]
    assert tool_output([]).message_content == [TextPart(text="[]", id=1)]


def test_a_list_with_something_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidToolOutput, match="object has no JSON"):
        tool_output([image(PNG), object()])


ATTACHMENT = {"bucket": "b", "path": "p", "mime_type": "text/csv", "url": "https://x/p"}


def test_hints_and_attachments_are_for_the_client_only() -> None:
    hints = {"ui_mode": "table", "ui_state": {}, "actions": []}
    made = tool_output({"rows": 3, "ui_hints": hints, "attachments": [ATTACHMENT]})
    assert made.message_content == [TextPart(text='{"rows":3}', id=1)]
    attached = File(url="https://x/p", mime_type="text/csv", bucket="b", path="p")
    beside = [Data(name="ui_hints", data=hints), attached]
    assert made.block_list == [Text(text='{"rows":3}', id=1), *beside]
    lists = {"message_content": [{"type": "text", "text": "three"}], "ui_hints": hints}
    assert tool_output(lists).block_list == [Text(text="three"), beside[0]]
    assert tool_output(lists).message_content == [TextPart(text="three")]


@pytest.mark.parametrize(
    "value",
    [
        {"ui_hints": "big", "n": 1},
        {"attachments": []},
        {"attachments": ["a.txt"]},
        {"attachments": [ATTACHMENT, {"name": "a.txt"}]},
        {"attachments": 3},
    ],
)
def test_data_that_only_has_the_same_name_stays_data(value: Any) -> None:
    made = tool_output(value)
    assert len(made.block_list) == len(made.message_content) == 1


def test_an_attachment_with_a_wrong_field_is_refused() -> None:
    with pytest.raises(InvalidToolOutput, match=r"attachments\[0\]"):
        tool_output({"attachments": [{**ATTACHMENT, "url": 3}]})
