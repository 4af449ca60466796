"""The test program of `Interop.cr`."""

import collections
import threading

from courier_messages import Aborted, ErrorType, Procedure, Program
from courier_types import (
    BOOLEAN, CARDINAL, INTEGER, LONG_CARDINAL, LONG_INTEGER, LONG_UNSPECIFIED, STRING, UNSPECIFIED,
    Array, Choice, Enumeration, Record, Reference, Sequence, StreamOf,
)

NAME, NUMBER, VERSION = "Interop", 1000000, 2

NOTES_MAX = 1000

COLOUR = Enumeration(red=0, green=7, blue=65535)

PERSON = Record(("name", STRING), ("age", CARDINAL), ("flags", Array(2, BOOLEAN)))

ROUND = Record(("radius", LONG_CARDINAL))

SHAPE = Choice(
    Enumeration(point=0, circle=1, disc=2, polygon=9),
    {"point": Record(), "circle": ROUND, "disc": ROUND, "polygon": Sequence(INTEGER)},
)

ANSWER = Choice(
    Enumeration(nothing=3, number=4, text=5),
    {"nothing": Record(), "number": LONG_INTEGER, "text": STRING},
)

TREE = Reference()
TREE.kind = Record(("label", CARDINAL), ("children", Sequence(TREE)))

LIST = Reference()
LIST.kind = Choice(
    Enumeration(nil=0, node=1),
    {"nil": Record(), "node": Record(("head", CARDINAL), ("rest", LIST))},
)

FAILURE = Enumeration(none=0, plain=1, text=2, record=3, undeclared=4)

PLAIN = ErrorType("Plain", 0)
TEXT = ErrorType("Text", 1, ("text", STRING))
DETAILED = ErrorType("Detailed", 2, ("person", PERSON), ("codes", Sequence(CARDINAL)))
OVERFLOW = ErrorType("Overflow", 3)
DIVISION_BY_ZERO = ErrorType("DivisionByZero", 65535, ("dividend", LONG_INTEGER))

ECHOES = (
    ("EchoBoolean", BOOLEAN),
    ("EchoCardinal", CARDINAL),
    ("EchoLongCardinal", LONG_CARDINAL),
    ("EchoInteger", INTEGER),
    ("EchoLongInteger", LONG_INTEGER),
    ("EchoUnspecified", UNSPECIFIED),
    ("EchoLongUnspecified", LONG_UNSPECIFIED),
    ("EchoString", STRING),
    ("EchoColour", COLOUR),
    ("EchoArray", Array(3, CARDINAL)),
    ("EchoSequence", Sequence(LONG_CARDINAL)),
    ("EchoBounded", Sequence(STRING, maximum=4)),
    ("EchoRecord", PERSON),
    ("EchoEmpties", Sequence(Record())),
    ("EchoChoice", SHAPE),
    ("EchoAnswer", ANSWER),
    ("EchoTree", TREE),
    ("EchoList", LIST),
    ("EchoStream", StreamOf(CARDINAL)),
)


def in_range(value):
    if not -(2**31) <= value < 2**31:
        raise Aborted(OVERFLOW)
    return value


def echo(value):
    return {"result": value}


def add(a, b):
    return {"sum": in_range(a + b)}


def divide(dividend, divisor):
    if divisor == 0:
        raise Aborted(DIVISION_BY_ZERO, {"dividend": dividend})
    quotient = abs(dividend) // abs(divisor)
    if (dividend < 0) != (divisor < 0):
        quotient = -quotient
    return {"quotient": in_range(quotient), "remainder": dividend - quotient * divisor}


def fail(failure):
    if failure == "plain":
        raise Aborted(PLAIN)
    if failure == "text":
        raise Aborted(TEXT, {"text": b"the reason"})
    if failure == "record":
        person = {"name": b"Ada", "age": 36, "flags": [True, False]}
        raise Aborted(DETAILED, {"person": person, "codes": [1, 2, 3]})
    if failure == "undeclared":
        raise Aborted(OVERFLOW)


class Interop:
    """The state of the program: the notes, and an event that ends all sleeping procedures."""

    def __init__(self):
        self.notes = collections.deque(maxlen=NOTES_MAX)
        self.is_stopping = threading.Event()

    def sleep(self, milliseconds):
        self.is_stopping.wait(milliseconds / 1000)
        return {"milliseconds": milliseconds}

    def note(self, text):
        self.notes.append(text)

    def all_notes(self):
        return {"notes": list(self.notes)}

    def program(self, number=NUMBER, version=VERSION):
        procedures = [Procedure("Nothing", 0, (), (), lambda: None)]
        for place, (name, kind) in enumerate(ECHOES, start=1):
            procedures.append(Procedure(name, place, [("value", kind)], [("result", kind)], echo))
        two = [("a", LONG_INTEGER), ("b", LONG_INTEGER)]
        divided = [("dividend", LONG_INTEGER), ("divisor", LONG_INTEGER)]
        parts = [("quotient", LONG_INTEGER), ("remainder", LONG_INTEGER)]
        time, text = [("milliseconds", CARDINAL)], [("text", STRING)]
        notes = [("notes", Sequence(STRING))]
        procedures += [
            Procedure("Add", 40, two, [("sum", LONG_INTEGER)], add, [OVERFLOW]),
            Procedure("Divide", 41, divided, parts, divide, [DIVISION_BY_ZERO, OVERFLOW]),
            Procedure("Fail", 42, [("failure", FAILURE)], (), fail, [PLAIN, TEXT, DETAILED]),
            Procedure("Sleep", 43, time, time, self.sleep),
            Procedure("Note", 44, text, (), self.note),
            Procedure("Notes", 45, (), notes, self.all_notes),
        ]
        return Program(NAME, number, version, procedures)
