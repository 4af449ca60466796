"""The data types of Courier: values become 16-bit words, and words become values.

Every type is an object with `encode`, `decode` and `least`. `least` is the number of words that each
value of the type has at least. A decoder uses it to refuse a count that the message cannot hold.

Python values:
- BOOLEAN is `bool`; numbers are `int`.
- STRING is `bytes`. Encoders also accept `str` and `{"hex": "ff00"}`, which are the JSON forms.
- An enumeration is the name of its tag. Encoders also accept the number.
- ARRAY and SEQUENCE are lists. RECORD is a dictionary with its fields in order.
- CHOICE is a dictionary with one entry: the designator and the value of its arm.
- A stream (`StreamOf`) is a list of segments, which are lists.
"""

WORD_MAX = 0xFFFF

DEPTH_MAX = 256
"""How deep arrays, sequences, records and choices may be nested in one value."""

EMPTY_ELEMENTS_MAX = 65535
"""How many elements without words (`RECORD []`) one message may hold. Such elements take memory in
the decoder although no byte of them arrives, so the size of the message does not bound them."""


class Invalid(Exception):
    """The words are not a value of the type, or the value cannot be encoded."""


class Writer:
    """Collects words."""

    def __init__(self, byte_booleans=False):
        self.data = bytearray()
        self.byte_booleans = byte_booleans
        self.depth = 0

    def word(self, value):
        self.data += value.to_bytes(2, "big")

    def enter(self):
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise Invalid("the value is nested too deep")

    def leave(self):
        self.depth -= 1


class Reader:
    """Reads words from a message that has arrived completely."""

    def __init__(self, data, byte_booleans=False):
        if len(data) % 2:
            raise Invalid("the message ends within a word")
        self.data = data
        self.at = 0
        self.byte_booleans = byte_booleans
        self.depth = 0
        self.empty_elements = EMPTY_ELEMENTS_MAX

    def words_left(self):
        return (len(self.data) - self.at) // 2

    def take(self, size):
        if size > len(self.data) - self.at:
            raise Invalid("the message ends within a value")
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def word(self):
        return int.from_bytes(self.take(2), "big")

    def enter(self):
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise Invalid("the value is nested too deep")

    def leave(self):
        self.depth -= 1

    def elements(self, count, least):
        """Checks that `count` elements of at least `least` words can be in the rest of the message."""
        if least:
            if count * least > self.words_left():
                raise Invalid("the count is greater than the message can hold")
            return
        self.empty_elements -= count
        if self.empty_elements < 0:
            raise Invalid("the message has too many elements without words")


class Boolean:
    least = 1

    def encode(self, value, to):
        if not isinstance(value, bool):
            raise Invalid(f"{value!r} is no BOOLEAN")
        # Cooper's header of 1983 wrote one byte at the first byte of the word.
        to.word(value << 8 if to.byte_booleans else int(value))

    def decode(self, reader):
        word = reader.word()
        if reader.byte_booleans:
            return word >> 8 != 0
        if word > 1:
            raise Invalid(f"{word} is no BOOLEAN")
        return word == 1


class Number:
    """The types of numbers. The high word of a long number is first."""

    def __init__(self, name, words, signed):
        self.name, self.least, self.signed = name, words, signed

    def encode(self, value, to):
        if not isinstance(value, int) or isinstance(value, bool):
            raise Invalid(f"{value!r} is no {self.name}")
        try:
            to.data += value.to_bytes(2 * self.least, "big", signed=self.signed)
        except OverflowError:
            raise Invalid(f"{value} is out of the range of {self.name}") from None

    def decode(self, reader):
        return int.from_bytes(reader.take(2 * self.least), "big", signed=self.signed)


BOOLEAN = Boolean()
CARDINAL = Number("CARDINAL", 1, signed=False)
LONG_CARDINAL = Number("LONG CARDINAL", 2, signed=False)
INTEGER = Number("INTEGER", 1, signed=True)
LONG_INTEGER = Number("LONG INTEGER", 2, signed=True)
UNSPECIFIED = Number("UNSPECIFIED", 1, signed=False)
LONG_UNSPECIFIED = Number("LONG UNSPECIFIED", 2, signed=False)
"""Not in the standard: both Berkeley compilers have it."""


class String:
    """A count of bytes, and the bytes: two in each word, the first one in the high half."""

    least = 1

    def encode(self, value, to):
        data = text_bytes(value)
        if len(data) > WORD_MAX:
            raise Invalid(f"a STRING of {len(data)} bytes is too long")
        to.word(len(data))
        to.data += data + bytes(len(data) % 2)

    def decode(self, reader):
        size = reader.word()
        # The value of the byte after an odd count is not checked.
        return reader.take(size + size % 2)[:size]


STRING = String()


def text_bytes(value):
    """Returns the bytes of a STRING from any of its forms."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["hex"] and isinstance(value["hex"], str):
        try:
            return bytes.fromhex(value["hex"])
        except ValueError:
            pass
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise Invalid(f"{value!r} is no STRING")


class Enumeration:
    least = 1

    def __init__(self, **tags):
        self.numbers = tags
        self.names = {number: name for name, number in tags.items()}

    def number(self, value):
        if isinstance(value, str) and value in self.numbers:
            return self.numbers[value]
        if isinstance(value, int) and not isinstance(value, bool) and value in self.names:
            return value
        raise Invalid(f"{value!r} is in no tag of the enumeration")

    def encode(self, value, to):
        to.word(self.number(value))

    def decode(self, reader):
        word = reader.word()
        if word not in self.names:
            raise Invalid(f"the enumeration has no tag with the number {word}")
        return self.names[word]


class Array:
    """A fixed number of elements, without a count."""

    def __init__(self, count, element):
        self.count, self.element = count, element

    @property
    def least(self):
        return self.count * self.element.least

    def encode(self, value, to):
        if not isinstance(value, list) or len(value) != self.count:
            raise Invalid(f"the value is no array of {self.count} elements")
        encode_all(self.element, value, to)

    def decode(self, reader):
        return decode_all(self.element, self.count, reader)


class Sequence:
    """A count and the elements."""

    least = 1

    def __init__(self, element, maximum=WORD_MAX):
        self.element, self.maximum = element, maximum

    def encode(self, value, to):
        if not isinstance(value, list) or len(value) > self.maximum:
            raise Invalid(f"the value is no sequence of at most {self.maximum} elements")
        to.word(len(value))
        encode_all(self.element, value, to)

    def decode(self, reader):
        count = reader.word()
        if count > self.maximum:
            raise Invalid(f"the sequence has {count} elements, more than {self.maximum}")
        return decode_all(self.element, count, reader)


def encode_all(element, values, to):
    to.enter()
    for value in values:
        element.encode(value, to)
    to.leave()


def decode_all(element, count, reader):
    reader.enter()
    reader.elements(count, element.least)
    values = []
    for _ in range(count):
        values.append(element.decode(reader))
    reader.leave()
    return values


class Record:
    """Named fields, one after the other. `RECORD []` has no words."""

    def __init__(self, *fields):
        self.fields = fields

    @property
    def least(self):
        return sum(kind.least for _, kind in self.fields)

    def encode(self, value, to):
        names = [name for name, _ in self.fields]
        if not isinstance(value, dict) or sorted(value) != sorted(names):
            raise Invalid(f"the value is no record with the fields {names}")
        to.enter()
        for name, kind in self.fields:
            kind.encode(value[name], to)
        to.leave()

    def decode(self, reader):
        reader.enter()
        value = {}
        for name, kind in self.fields:
            value[name] = kind.decode(reader)
        reader.leave()
        return value


class Choice:
    """A designator, which is a tag of an enumeration, and the arm that it selects."""

    least = 1

    def __init__(self, designators, arms):
        """`arms` maps the name of each designator to a type. Several may have the same type."""
        self.designators, self.arms = designators, arms

    def encode(self, value, to):
        if not isinstance(value, dict) or len(value) != 1:
            raise Invalid("the value of a CHOICE is no dictionary with one entry")
        ((name, arm),) = value.items()
        if name not in self.arms:
            raise Invalid(f"the CHOICE has no arm {name!r}")
        to.enter()
        self.designators.encode(name, to)
        self.arms[name].encode(arm, to)
        to.leave()

    def decode(self, reader):
        reader.enter()
        name = self.designators.decode(reader)
        if name not in self.arms:
            raise Invalid(f"the CHOICE has no arm {name!r}")
        value = {name: self.arms[name].decode(reader)}
        reader.leave()
        return value


class Reference:
    """A type that is defined later. Recursive types need it."""

    def __init__(self):
        self.kind = None

    @property
    def least(self):
        return self.kind.least

    def encode(self, value, to):
        self.kind.encode(value, to)

    def decode(self, reader):
        return self.kind.decode(reader)


class StreamOf:
    """The recursive CHOICE by which Courier describes a stream of segments:

    nextSegment(0) has a segment and the rest of the stream, lastSegment(1) has the last segment. The
    rest follows its segment directly, so a loop reads any number of segments without recursion.
    """

    least = 2

    def __init__(self, element):
        self.segment = Sequence(element)

    def encode(self, value, to):
        if not isinstance(value, list) or not value:
            raise Invalid("a stream is a list of one or more segments")
        for segment in value[:-1]:
            to.word(0)
            self.segment.encode(segment, to)
        to.word(1)
        self.segment.encode(value[-1], to)

    def decode(self, reader):
        segments = []
        while True:
            designator = reader.word()
            if designator > 1:
                raise Invalid(f"{designator} designates no segment of a stream")
            segments.append(self.segment.decode(reader))
            if designator == 1:
                return segments


def encode(kind, value, byte_booleans=False):
    """Returns the words of a value, as bytes."""
    to = Writer(byte_booleans)
    kind.encode(value, to)
    return bytes(to.data)


def decode(kind, data, byte_booleans=False):
    """Returns the value that consists of all bytes of `data`."""
    reader = Reader(data, byte_booleans)
    value = kind.decode(reader)
    if reader.words_left():
        raise Invalid(f"{reader.words_left()} words follow the value")
    return value


def plain(value):
    """Returns a value in the form that JSON has: bytes become text, or hexadecimal digits if they are
    not UTF-8."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value
