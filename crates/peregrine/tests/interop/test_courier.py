"""Tests of the Courier programs in this directory against themselves, on this machine.

The expected words are derived by hand from the rules of the protocol.
"""

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import unittest

import courier_hostile
from courier_datagrams import (
    DatagramClient, DatagramServer, KEPT_BYTES_MAX, KEPT_MAX, RUNNING_MAX, Replies, datagram,
)
from courier_messages import Aborted, Malformed, Rejected, common_version, outcome, words
from courier_program import ANSWER, COLOUR, ECHOES, LIST, PERSON, SHAPE, TREE, Interop
from courier_streams import (
    Connection, CooperClient, CourierClient, EMPTY_FRAGMENTS_MAX, FRAMINGS, Failed, MESSAGE_MAX,
    cooper_server, courier_server,
)
from courier_types import (
    BOOLEAN, CARDINAL, DEPTH_MAX, EMPTY_ELEMENTS_MAX, INTEGER, LONG_CARDINAL, LONG_INTEGER,
    LONG_UNSPECIFIED, STRING, UNSPECIFIED, Array, Invalid, Record, Sequence, StreamOf, decode, encode, plain,
)

DIRECTORY = os.path.dirname(os.path.abspath(__file__))

ADA = {"name": b"Ada", "age": 36, "flags": [True, False]}

# Type, value, words in hexadecimal.
GOLDEN = [
    (BOOLEAN, False, "0000"),
    (BOOLEAN, True, "0001"),
    (CARDINAL, 0, "0000"),
    (CARDINAL, 65535, "ffff"),
    (LONG_CARDINAL, 0x12345678, "1234 5678"),
    (LONG_CARDINAL, 65536, "0001 0000"),
    (INTEGER, -1, "ffff"),
    (INTEGER, -32768, "8000"),
    (INTEGER, 32767, "7fff"),
    (LONG_INTEGER, -2, "ffff fffe"),
    (LONG_INTEGER, -(2**31), "8000 0000"),
    (UNSPECIFIED, 0xBEEF, "beef"),
    (LONG_UNSPECIFIED, 0xDEADBEEF, "dead beef"),
    (STRING, b"", "0000"),
    (STRING, b"a", "0001 6100"),
    (STRING, b"ab", "0002 6162"),
    (STRING, b"abc", "0003 6162 6300"),
    (STRING, "ü".encode(), "0002 c3bc"),
    (COLOUR, "green", "0007"),
    (COLOUR, "blue", "ffff"),
    (Array(3, CARDINAL), [1, 2, 3], "0001 0002 0003"),
    (Array(0, CARDINAL), [], ""),
    (Array(2, STRING), [b"", b"x"], "0000 0001 7800"),
    (Sequence(LONG_CARDINAL), [], "0000"),
    (Sequence(LONG_CARDINAL), [1, 65536], "0002 0000 0001 0001 0000"),
    (Sequence(STRING, maximum=2), [b"a", b"bc"], "0002 0001 6100 0002 6263"),
    (Record(), {}, ""),
    (Sequence(Record()), [{}, {}, {}], "0003"),
    (PERSON, ADA, "0003 4164 6100 0024 0001 0000"),
    (SHAPE, {"point": {}}, "0000"),
    (SHAPE, {"circle": {"radius": 65537}}, "0001 0001 0001"),
    (SHAPE, {"disc": {"radius": 2}}, "0002 0000 0002"),
    (SHAPE, {"polygon": [1, -1]}, "0009 0002 0001 ffff"),
    (ANSWER, {"nothing": {}}, "0003"),
    (ANSWER, {"number": -1}, "0004 ffff ffff"),
    (ANSWER, {"text": b"no"}, "0005 0002 6e6f"),
    (TREE, {"label": 5, "children": []}, "0005 0000"),
    (
        TREE,
        {"label": 1, "children": [{"label": 2, "children": []}, {"label": 3, "children": []}]},
        "0001 0002 0002 0000 0003 0000",
    ),
    (LIST, {"nil": {}}, "0000"),
    (
        LIST,
        {"node": {"head": 7, "rest": {"node": {"head": 8, "rest": {"nil": {}}}}}},
        "0001 0007 0001 0008 0000",
    ),
    (StreamOf(CARDINAL), [[1, 2, 3]], "0001 0003 0001 0002 0003"),
    (StreamOf(CARDINAL), [[1, 2], [3]], "0000 0002 0001 0002 0001 0001 0003"),
    (StreamOf(CARDINAL), [[], []], "0000 0000 0001 0000"),
]

CARRIERS = ("tcp-rm", "tcp-spp", "cooper", "udp")
STANDARD = ("tcp-rm", "tcp-spp", "udp")


class Types(unittest.TestCase):
    def test_values_have_the_golden_words(self):
        for kind, value, text in GOLDEN:
            with self.subTest(value=value):
                data = bytes.fromhex(text)
                self.assertEqual(encode(kind, value), data)
                self.assertEqual(decode(kind, data), value)
                self.assertLessEqual(2 * kind.least, len(data))
                # The JSON form of a value means the same.
                self.assertEqual(encode(kind, json.loads(json.dumps(plain(value)))), data)

    def test_every_truncation_is_refused(self):
        for kind, value, text in GOLDEN:
            data = bytes.fromhex(text)
            for size in range(len(data)):
                with self.subTest(value=value, size=size), self.assertRaises(Invalid):
                    decode(kind, data[:size])
            with self.assertRaises(Invalid):
                decode(kind, data + b"\0\0")

    def test_wrong_words_are_refused(self):
        for kind, text in (
            (BOOLEAN, "0002"),
            (COLOUR, "0001"),
            (SHAPE, "0003"),
            (SHAPE, "0001 0001"),
            (STRING, "ffff 6161"),
            (Sequence(CARDINAL), "ffff 0001"),
            (Sequence(CARDINAL, maximum=1), "0002 0001 0001"),
            (StreamOf(CARDINAL), "0002 0000 0001 0000"),
            (StreamOf(CARDINAL), "0000 0000"),
            (TREE, "0001 ffff" + "0001 ffff" * 50),
        ):
            with self.subTest(text=text), self.assertRaises(Invalid):
                decode(kind, bytes.fromhex(text))

    def test_wrong_values_are_refused(self):
        for kind, value in (
            (BOOLEAN, 1),
            (CARDINAL, -1),
            (CARDINAL, 65536),
            (CARDINAL, True),
            (INTEGER, 32768),
            (LONG_INTEGER, 2**31),
            (STRING, b"x" * 65536),
            (STRING, {"hex": "f"}),
            (COLOUR, "yellow"),
            (COLOUR, 1),
            (Array(2, CARDINAL), [1]),
            (Sequence(CARDINAL, maximum=1), [1, 2]),
            (Sequence(CARDINAL), [0] * 65536),
            (PERSON, {"name": b"Ada"}),
            (SHAPE, {"square": 1}),
            (SHAPE, {"point": {}, "disc": {"radius": 1}}),
            (StreamOf(CARDINAL), []),
        ):
            with self.subTest(value=str(value)[:40]), self.assertRaises(Invalid):
                encode(kind, value)

    def test_padding_is_written_as_zero_and_ignored(self):
        self.assertEqual(decode(STRING, bytes.fromhex("0001 61ff")), b"a")

    def test_booleans_of_the_first_cooper_header_are_one_byte(self):
        self.assertEqual(encode(BOOLEAN, True, byte_booleans=True), b"\1\0")
        self.assertTrue(decode(BOOLEAN, b"\1\xff", byte_booleans=True))
        self.assertFalse(decode(BOOLEAN, b"\0\xff", byte_booleans=True))

    def test_depth_is_bounded(self):
        # A tree takes two levels for each node: the record and the sequence.
        fits, too_deep = DEPTH_MAX // 2 - 1, DEPTH_MAX // 2 + 1
        data = words(*[1, 1] * fits, 1, 0)
        self.assertEqual(encode(TREE, decode(TREE, data)), data)
        for depth in (too_deep, 100000):
            with self.assertRaises(Invalid):
                decode(TREE, words(*[1, 1] * depth, 1, 0))
        value = {"label": 1, "children": []}
        for _ in range(too_deep):
            value = {"label": 1, "children": [value]}
        with self.assertRaises(Invalid):
            encode(TREE, value)

    def test_streams_are_read_without_recursion(self):
        data = words(*[0, 0] * 50000, 1, 1, 7)
        value = decode(StreamOf(CARDINAL), data)
        self.assertEqual((len(value), value[-1]), (50001, [7]))
        self.assertEqual(encode(StreamOf(CARDINAL), value), data)

    def test_elements_without_words_are_bounded_in_all_of_a_message(self):
        kind = Sequence(Sequence(Record()))
        half = EMPTY_ELEMENTS_MAX // 2
        decode(kind, words(2, half, half))
        with self.assertRaises(Invalid):
            decode(kind, words(3, half, half, half))

    def test_random_words_are_a_value_or_invalid(self):
        chance = random.Random(1)
        for _ in range(3000):
            _, kind = chance.choice(ECHOES)
            data = words(*[chance.choice((0, 1, 2, 9, 65535)) for _ in range(chance.randrange(12))])
            try:
                value = decode(kind, data)
            except Invalid:
                continue
            again = encode(kind, value)
            self.assertEqual(decode(kind, again), value)
            self.assertEqual(len(again), len(data))


class Interface(unittest.TestCase):
    def test_the_program_has_the_numbers_of_its_interface(self):
        path = os.path.join(DIRECTORY, "Interop.cr")
        with open(path, encoding="ascii") as file:
            text = re.sub("--.*", "", file.read())
        program = Interop().program()
        head = re.search(r"(\w+): PROGRAM (\d+) VERSION (\d+)", text).groups()
        self.assertEqual(head, (program.name, str(program.number), str(program.version)))
        declared = re.findall(r"(\w+): (PROCEDURE|ERROR)\b([^;]*)= (\d+);", text)
        errors = {name: int(number) for name, kind, _, number in declared if kind == "ERROR"}
        procedures = {name: int(number) for name, kind, _, number in declared if kind != "ERROR"}
        self.assertEqual(len(errors), 5)
        found = {procedure.name: number for number, procedure in program.by_number.items()}
        self.assertEqual(found, procedures)
        for name, _, rest, _ in declared:
            reports = re.search(r"REPORTS \[(.*)\]", rest)
            reports = re.findall(r"\w+", reports[1]) if reports else []
            if name in procedures:
                reported = program.by_name[name].reports
                self.assertEqual({one.name: number for number, one in reported.items()},
                                 {error: errors[error] for error in reports})
                rest = re.sub(r"REPORTS.*", "", rest, flags=re.DOTALL)
                parts = re.split("RETURNS", rest)
                self.assertEqual("RETURNS" in rest, bool(program.by_name[name].results.fields))
                self.assertEqual("[" in parts[0], bool(program.by_name[name].arguments.fields))


class Messages(unittest.TestCase):
    def setUp(self):
        self.program = Interop().program()

    def serve(self, text):
        return self.program.serve(bytes.fromhex(text))[0]

    def test_messages_have_the_golden_words(self):
        # The number 1000000 of the program is 000f 4240.
        call = self.program.call(self.program.find("Add"), 0x1234, {"a": 1, "b": -2})
        self.assertEqual(call.hex(" ", 2), "0000 1234 000f 4240 0002 0028 0000 0001 ffff fffe")
        for sent, reply in (
            ("0000 1234 000f 4240 0002 0028 0000 0001 ffff fffe", "0002 1234 ffff ffff"),
            ("0000 0000 000f 4240 0002 0000", "0002 0000"),
            ("0000 ffff 000f 4241 0002 0000", "0001 ffff 0000"),
            ("0000 0001 000f 4240 0003 0000", "0001 0001 0001 0002 0002"),
            ("0000 0001 000f 4240 0002 03e7", "0001 0001 0002"),
            ("0000 0001 000f 4240 0002 0000 0000", "0001 0001 0003"),
            ("0000 0001 000f 4240 0002 0028 0000", "0001 0001 0003"),
            ("0000 0001 000f 4240 0002 002a 0000", "0002 0001"),
            ("0000 0001 000f 4240 0002 002a 0001", "0003 0001 0000"),
            ("0000 0001 000f 4240 0002 002a 0002", "0003 0001 0001 000a 7468 6520 7265 6173 6f6e"),
            ("0000 0001 000f 4240 0002 002a 0004", "0001 0001 ffff"),
            ("0000 0001 000f 4240 0002 0029 0000 0007 0000 0000", "0003 0001 ffff 0000 0007"),
            # The numbers are checked from left to right.
            ("0000 0001 000f 4241 0009 03e7", "0001 0001 0000"),
            ("0000 0001 000f 4240 0009 03e7", "0001 0001 0001 0002 0002"),
            ("0002 0001 000f 4240 0002 0000", "0001 0001 ffff"),
        ):
            with self.subTest(sent=sent):
                self.assertEqual(self.serve(sent).hex(" ", 2), reply)

    def test_calls_that_are_too_short_are_malformed(self):
        for text in ("", "00", "0000", "0000 0001", "0000 0001 000f 4240 0002", "0000 0001 00"):
            with self.subTest(text=text), self.assertRaises(Malformed):
                self.program.serve(bytes.fromhex(text))

    def test_replies_are_understood_or_malformed(self):
        divide = self.program.find("Divide")

        def read(text):
            return outcome(divide, 7, bytes.fromhex(text))

        self.assertEqual(read("0002 0007 0000 0003 ffff ffff"), {"quotient": 3, "remainder": -1})
        with self.assertRaises(Aborted) as aborted:
            read("0003 0007 ffff 0000 0009")
        self.assertEqual(aborted.exception.arguments, {"dividend": 9})
        with self.assertRaises(Rejected) as rejected:
            read("0001 0007 0001 0004 0005")
        self.assertEqual((rejected.exception.lowest, rejected.exception.highest), (4, 5))
        for text in (
            "", "0002", "0002 0008 0000 0003 ffff ffff", "0002 0007", "0000 0007", "0004 0007",
            "0003 0007 0001", "0003 0007 ffff", "0001 0007", "0001 0007 0001", "0001 0007 0000 0000",
            "0002 0007 0000 0003 ffff ffff 0000",
        ):
            with self.subTest(text=text), self.assertRaises(Malformed):
                read(text)

    def test_highest_common_version_is_used(self):
        for ours, theirs, common in (
            ((3, 3), (3, 3), 3), ((3, 3), (2, 3), 3), ((2, 3), (2, 5), 3), ((2, 3), (1, 2), 2),
            ((3, 3), (2, 2), None), ((3, 3), (4, 9), None), ((3, 3), (5, 2), None),
        ):
            self.assertEqual(common_version(ours, theirs), common)


class Framings(unittest.TestCase):
    def both(self, carrier, chunk=None):
        ends = socket.socketpair()
        for end in ends:
            self.addCleanup(end.close)
        return [FRAMINGS[carrier](end, chunk) for end in ends]

    def test_frames_have_the_golden_bytes(self):
        for carrier, chunk, expected in (
            ("tcp-rm", None, "80000004 00030003"),
            ("tcp-rm", 3, "00000003 000300 80000001 03"),
            ("tcp-spp", None, "00010004 00030003"),
            ("tcp-spp", 3, "00000003 000300 00010001 03"),
        ):
            sender, receiver = self.both(carrier, chunk)
            sender.send(words(3, 3))
            self.assertEqual(receiver.input.exactly(len(bytes.fromhex(expected))), bytes.fromhex(expected))

    def test_messages_of_all_lengths_arrive_in_fragments_of_all_lengths(self):
        for carrier in FRAMINGS:
            for chunk in (1, 2, 3, 7, None):
                sender, receiver = self.both(carrier, chunk)
                for size in (0, 1, 2, 3, 7, 8, 1000):
                    sender.send(b"x" * size)
                    self.assertEqual(receiver.receive(), b"x" * size)
                sender.sock.close()
                self.assertIsNone(receiver.receive())

    def test_versions_in_any_order_and_in_one_or_two_messages(self):
        for carrier in FRAMINGS:
            for ours in ("separate", "joined"):
                for theirs in ("separate", "joined"):
                    left, right = self.both(carrier, chunk=3)
                    left, right = Connection(left, ours), Connection(right, theirs, (2, 5))
                    left.send(b"call")
                    self.assertEqual(right.receive(), b"call")
                    right.send(b"reply")
                    self.assertEqual((left.receive(), left.theirs), (b"reply", (2, 5)))

    def test_lengths_and_empty_fragments_are_bounded_before_the_data_arrives(self):
        message = words(3, 3)
        for carrier, empty, last in (("tcp-rm", "00000000", "80000000"), ("tcp-spp", "00000000", "00010000")):
            empty, last = bytes.fromhex(empty), bytes.fromhex(last)
            ours, theirs = self.both(carrier)
            # A receiver that waits for more data fails the test.
            ours.sock.settimeout(10)
            theirs.sock.sendall(empty * (EMPTY_FRAGMENTS_MAX - 1) + last)
            self.assertEqual(ours.receive(), b"")
            theirs.send(message)
            self.assertEqual(ours.receive(), message)
            theirs.sock.sendall(empty * (EMPTY_FRAGMENTS_MAX + 1))
            with self.assertRaises(Malformed):
                ours.receive()
        ours, theirs = self.both("tcp-rm")
        ours.sock.settimeout(10)
        theirs.sock.sendall((1 << 31 | MESSAGE_MAX + 1).to_bytes(4, "big"))
        with self.assertRaises(Malformed):
            ours.receive()
        ours, theirs = self.both("tcp-spp")
        ours.sock.settimeout(10)
        data = bytes.fromhex("0000ffff") + bytes(0xFFFF)
        sender = threading.Thread(target=theirs.sock.sendall, args=(data * (MESSAGE_MAX // 0xFFFF + 1),))
        sender.start()
        with self.assertRaises(Malformed):
            ours.receive()
        sender.join()

    def test_end_is_answered(self):
        ours, theirs = self.both("tcp-spp")
        theirs.sock.sendall(bytes.fromhex("fe000000"))
        self.assertIsNone(ours.receive())
        self.assertEqual(theirs.input.exactly(4), bytes.fromhex("ff000000"))


@contextlib.contextmanager
def serving(carrier, program=None, **options):
    """Runs a server. Yields the port, the log of calls and the state of the program."""
    interop, log = Interop(), []
    program = program or interop.program()
    if carrier == "udp":
        server = DatagramServer(program, log.append, **options)
    elif carrier == "cooper":
        server = cooper_server(program, log.append, **options)
    else:
        server = courier_server(carrier, program, log.append, **options)
    with server:
        try:
            yield server.port, log, interop
        finally:
            interop.is_stopping.set()


def calling(carrier, port, program=None, **options):
    program, address = program or Interop().program(), ("127.0.0.1", port)
    if carrier == "udp":
        return DatagramClient(program, address, **options)
    if carrier == "cooper":
        return CooperClient(program, address, **options)
    return CourierClient(carrier, program, address, **options)


class Carriers(unittest.TestCase):
    def test_every_type_is_echoed(self):
        values = {
            "EchoBoolean": True, "EchoCardinal": 65535, "EchoLongCardinal": 2**32 - 1,
            "EchoInteger": -32768, "EchoLongInteger": -(2**31), "EchoUnspecified": 0xBEEF,
            "EchoLongUnspecified": 0xDEADBEEF, "EchoString": b"\xff\0odd", "EchoColour": "blue",
            "EchoArray": [1, 2, 3], "EchoSequence": list(range(1000)),
            "EchoBounded": [b"a", b"", b"ccc", b"dd"], "EchoRecord": ADA, "EchoEmpties": [{}] * 3,
            "EchoChoice": {"polygon": [1, -1]}, "EchoAnswer": {"text": b"no"},
            "EchoTree": {"label": 1, "children": [{"label": 2, "children": []}] * 2},
            "EchoList": {"node": {"head": 7, "rest": {"nil": {}}}}, "EchoStream": [[1], [], [2, 3]],
        }
        self.assertEqual(list(values), [name for name, _ in ECHOES])
        for carrier in CARRIERS:
            with serving(carrier) as (port, log, _), calling(carrier, port) as client:
                for name, value in values.items():
                    with self.subTest(carrier=carrier, name=name):
                        self.assertEqual(client.call(name, {"value": value}), {"result": value})
                self.assertEqual(client.call("Add", {"a": 2, "b": -3}), {"sum": -1})
                divided = client.call("Divide", {"dividend": -7, "divisor": 2})
                self.assertEqual(divided, {"quotient": -3, "remainder": -1})
                self.assertEqual([one["procedure"] for one in log], [*values, "Add", "Divide"])

    def test_errors_and_rejections_arrive_and_the_connection_stays_usable(self):
        for carrier in STANDARD:
            with serving(carrier) as (port, _, _), calling(carrier, port) as client:
                for failure, name, arguments in (
                    ("plain", "Plain", {}),
                    ("text", "Text", {"text": b"the reason"}),
                    ("record", "Detailed", {"person": ADA, "codes": [1, 2, 3]}),
                ):
                    with self.assertRaises(Aborted) as aborted:
                        client.call("Fail", {"failure": failure})
                    found = aborted.exception
                    self.assertEqual((found.error.name, found.arguments), (name, arguments))
                self.assertEqual(client.call("Fail", {"failure": "none"}), {})
                with self.assertRaises(Aborted):
                    client.call("Add", {"a": 2**31 - 1, "b": 1})
                self.assertRejected(client, "unspecifiedError", "Fail", {"failure": "undeclared"})
                client.program = Interop().program(version=3)
                self.assertRejected(client, "noSuchVersionNumber", "Nothing", {})
                client.program = Interop().program(number=5)
                self.assertRejected(client, "noSuchProgramNumber", "Nothing", {})
                client.program = Interop().program()
                client.program.find("Nothing").number = 999
                self.assertRejected(client, "noSuchProcedureValue", "Nothing", {})
                client.program = Interop().program()
                client.program.find("EchoColour").arguments = Record(("value", CARDINAL))
                self.assertRejected(client, "invalidArgument", "EchoColour", {"value": 3})
                self.assertEqual(client.call("Nothing", {}), {})

    def assertRejected(self, client, reason, *call):
        with self.assertRaises(Rejected) as rejected:
            client.call(*call)
        self.assertEqual(str(rejected.exception), reason)
        if reason == "noSuchVersionNumber":
            self.assertEqual((rejected.exception.lowest, rejected.exception.highest), (2, 2))

    def test_notes_arrive_in_order(self):
        texts = [f"note {number}".encode() for number in range(50)]
        for carrier in CARRIERS:
            with serving(carrier) as (port, _, _), calling(carrier, port) as client:
                for text in texts:
                    # Cooper's form does not wait for calls without results.
                    result = client.call("Note", {"text": text})
                    self.assertEqual(result, None if carrier == "cooper" else {})
                self.assertEqual(client.call("Notes", {}), {"notes": texts})

    def test_a_slow_procedure_does_not_hold_up_others(self):
        for carrier in CARRIERS:
            with serving(carrier) as (port, log, interop):
                slow = threading.Thread(target=self.sleep, args=(carrier, port))
                slow.start()
                with calling(carrier, port) as client:
                    self.assertEqual(client.call("Add", {"a": 1, "b": 2}), {"sum": 3})
                    self.assertEqual([one["procedure"] for one in log], ["Add"])
                interop.is_stopping.set()
                slow.join()

    def sleep(self, carrier, port):
        with calling(carrier, port) as client:
            client.call("Sleep", {"milliseconds": 65535})

    def test_stopped_server_closes_idle_connections(self):
        for carrier in ("tcp-rm", "tcp-spp", "cooper"):
            with serving(carrier) as (port, _, _):
                client = calling(carrier, port)
                client.call("Add", {"a": 1, "b": 2})
            with client:
                self.assertEqual(client.sock.recv(1), b"")

    def test_large_arguments(self):
        text = bytes(range(256)) * 200
        for carrier in CARRIERS:
            with serving(carrier) as (port, _, _), calling(carrier, port) as client:
                self.assertEqual(client.call("EchoString", {"value": text}), {"result": text})
        notes = [[number] * 10000 for number in range(10)]
        for carrier in FRAMINGS:
            with serving(carrier, chunk=999) as (port, _, _), calling(carrier, port, chunk=1001) as client:
                self.assertEqual(client.call("EchoStream", {"value": notes}), {"result": notes})

    def test_versions_may_be_absent_or_differ(self):
        for carrier in FRAMINGS:
            for server, client in (
                ("separate", "separate"), ("separate", "joined"), ("joined", "joined"), ("none", "none"),
            ):
                with serving(carrier, versions=server) as (port, _, _):
                    with calling(carrier, port, versions=client) as caller:
                        self.assertEqual(caller.call("Nothing", {}), {})
            for spoken in ((2, 2), (4, 7)):
                with serving(carrier) as (port, log, _):
                    with calling(carrier, port, spoken=spoken) as client:
                        with self.assertRaises(Failed) as failed:
                            client.call("Note", {"text": b"x"})
                        self.assertEqual(failed.exception.executed, "no")
                    self.assertEqual(log, [])

    def test_cooper_connection_has_the_golden_words(self):
        with serving("cooper") as (port, _, _), socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(bytes.fromhex("0007 496e 7465 726f 7000"))
            self.assertEqual(sock.recv(100), b"\0")
            # A note has no reply. The sum is the first reply.
            sock.sendall(bytes.fromhex("002c 0002 0001 7800  0028 0004 0000 0001 0000 0002"))
            self.assertEqual(sock.recv(100).hex(" ", 2), "0002 0000 0003")
            sock.sendall(bytes.fromhex("002d 0000"))
            self.assertEqual(sock.recv(100).hex(" ", 2), "0003 0001 0001 7800")

    def test_cooper_server_refuses_unknown_names(self):
        other = Interop().program()
        other.name = "Other"
        with serving("cooper") as (port, _, _), self.assertRaises(Failed) as failed:
            calling("cooper", port, other)
        self.assertIn("Unknown Courier program.", str(failed.exception))
        self.assertEqual(failed.exception.executed, "no")

    def test_cooper_booleans_of_one_byte(self):
        options = {"byte_booleans": True}
        with serving("cooper", **options) as (port, _, _), calling("cooper", port, **options) as client:
            self.assertEqual(client.call("EchoBoolean", {"value": True}), {"result": True})
            self.assertEqual(client.call("EchoRecord", {"value": ADA}), {"result": ADA})

    def test_cooper_caller_learns_that_a_call_failed(self):
        with serving("cooper") as (port, _, _), calling("cooper", port) as client:
            with self.assertRaises(Failed):
                client.call("Divide", {"dividend": 1, "divisor": 0})
            with self.assertRaises(Failed) as failed:
                client.call("Nothing", {})
            self.assertEqual(failed.exception.executed, "no")

    def test_malformed_messages_do_no_harm(self):
        for carrier in CARRIERS:
            with serving(carrier) as (port, _, _):
                program = Interop().program()
                for found in courier_hostile.run_all(carrier, program, ("127.0.0.1", port)):
                    self.assertTrue(found["ok"], (carrier, found))


class Datagrams(unittest.TestCase):
    def test_datagrams_have_the_golden_words(self):
        with serving("udp") as (port, log, _), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("127.0.0.1", port))
            call = "1234 5678 0002 0003 0003  0000 0009 000f 4240 0002 0028 0000 0001 0000 0002"
            for _ in range(2):
                sock.send(bytes.fromhex(call))
                self.assertEqual(sock.recv(100).hex(" ", 2), "1234 5678 0002 0003 0003 0002 0009 0000 0003")
            # The reply to the duplicate is the first one: the call ran once.
            self.assertEqual(len(log), 1)
            # Another client type makes another call.
            sock.send(bytes.fromhex(call.replace("5678 0002", "5678 0000")))
            self.assertEqual(sock.recv(100).hex(" ", 2), "1234 5678 0000 0003 0003 0002 0009 0000 0003")
            self.assertEqual(len(log), 2)

    def test_lost_calls_and_replies_are_sent_again_and_run_once(self):
        for lost in ({"lose_calls": 2}, {"lose_replies": 2}, {"lose_calls": 1, "lose_replies": 1}):
            with serving("udp", **lost) as (port, log, _), calling("udp", port) as client:
                client.call("Note", {"text": b"once"})
                self.assertEqual(client.call("Notes", {}), {"notes": [b"once"]})
                self.assertEqual(len(log), 2)

    def test_duplicates_run_once(self):
        texts = [str(number).encode() for number in range(20)]
        with serving("udp") as (port, log, _), calling("udp", port, duplicates=3) as client:
            for text in texts:
                client.call("Note", {"text": text})
            self.assertEqual(client.call("Notes", {}), {"notes": texts})
            self.assertEqual(len(log), 21)

    def test_late_replies_to_earlier_calls_are_ignored(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind(("127.0.0.1", 0))
            client = DatagramClient(Interop().program(), server.getsockname())
            found = []
            thread = threading.Thread(target=lambda: found.append(client.call("Nothing", {})))
            with client:
                thread.start()
                call, peer = server.recvfrom(100)
                identifier, tid = int.from_bytes(call[:4], "big"), int.from_bytes(call[12:14], "big")
                reply = words(2, tid)
                server.sendto(b"", peer)
                server.sendto(datagram(identifier ^ 1, 2, reply), peer)
                server.sendto(datagram(identifier, 0, reply), peer)
                server.sendto(datagram(identifier, 2, reply, (2, 4)), peer)
                thread.join()
        self.assertEqual(found, [{}])

    def test_arguments_and_results_must_fit_into_a_datagram(self):
        text = b"x" * 65500
        with serving("udp") as (port, log, _), calling("udp", port) as client:
            with self.assertRaises(Failed) as failed:
                client.call("EchoString", {"value": text})
            self.assertEqual((failed.exception.executed, log), ("no", []))
            for _ in range(2):
                client.call("Note", {"text": text[:40000]})
            with self.assertRaises(Rejected):
                client.call("Notes", {})

    def test_replies_are_kept_in_bounded_number(self):
        replies = Replies()
        for key in range(RUNNING_MAX):
            self.assertEqual(replies.admit(key), (True, None))
        self.assertEqual(replies.admit("more"), (False, None))
        replies.keep(5, b"reply")
        self.assertEqual(replies.admit(5), (False, b"reply"))
        self.assertEqual(replies.admit(6), (False, None))
        self.assertEqual(replies.admit("more"), (True, None))
        replies.keep("more", b"x" * (KEPT_BYTES_MAX - 4))
        # The reply to call 5 is the oldest one. There is no room for it any more.
        self.assertEqual((list(replies.kept), replies.bytes), (["more"], KEPT_BYTES_MAX - 4))
        for key in range(-1, -KEPT_MAX - 1, -1):
            replies.admit(key)
            replies.keep(key, b"")
        self.assertEqual((len(replies.kept), replies.bytes), (KEPT_MAX, 0))


class CommandLine(unittest.TestCase):
    PROGRAM = os.path.join(DIRECTORY, "courier.py")

    def start(self, *arguments):
        command = [sys.executable, "-B", self.PROGRAM, *arguments]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run_once(self, *arguments):
        process = self.start(*arguments)
        output, _ = process.communicate()
        return process.returncode, [json.loads(line) for line in output.splitlines()]

    def test_programs_call_each_other(self):
        for carrier in CARRIERS:
            server = self.start("serve", "--carrier", carrier)
            place = ["--carrier", carrier, "--port", server.stdout.readline().strip()]
            # A server whose output is not read stops when the pipe is full.
            log = []
            reader = threading.Thread(target=log.extend, args=(server.stdout,))
            reader.start()
            status, found = self.run_once("call", *place, "Add", "[1, 2]")
            self.assertEqual((status, found), (0, [{"outcome": "return", "results": {"sum": 3}}]))
            status, found = self.run_once("call", *place, "EchoString", '{"value": {"hex": "ff"}}')
            self.assertEqual(found[0]["results"], {"result": {"hex": "ff"}})
            status, found = self.run_once("call", *place, "Divide", "[7, 0]")
            if carrier == "cooper":
                self.assertEqual((status, found[0]["executed"]), (2, "maybe"))
            else:
                expected = {"outcome": "abort", "error": "DivisionByZero", "number": 65535}
                self.assertEqual((status, found), (1, [expected | {"error_arguments": {"dividend": 7}}]))
            status, found = self.run_once("hostile", *place)
            self.assertEqual((status, [one for one in found if not one["ok"]]), (0, []))
            server.stdin.close()
            reader.join()
            server.stdout.close()
            self.assertEqual(server.wait(), 0)
            first = json.loads(log[0])
            self.assertEqual((first["procedure"], first["arguments"]), ("Add", {"a": 1, "b": 2}))


if __name__ == "__main__":
    unittest.main()
