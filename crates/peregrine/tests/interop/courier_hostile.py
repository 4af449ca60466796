"""Malformed messages, and what a server answers to them.

Each case uses a new connection. After its bytes, the client half-closes the connection, so the server
must answer or close; no case waits for a time to pass. Over UDP, the client sends a case until
the reply arrives. If there need be no reply, a correct call follows, and what arrived before the reply
to that call belongs to the case.
"""

import contextlib
import socket

from courier_datagrams import CLIENT_TYPE, DATAGRAM_MAX, HEADER, DatagramClient
from courier_messages import (
    ABORT, CALL, Malformed, NO_SUCH_PROCEDURE, NO_SUCH_PROGRAM, NO_SUCH_VERSION, INVALID_ARGUMENT,
    REASONS, REJECT, RETURN, UNSPECIFIED_ERROR, words,
)
from courier_streams import CooperClient, CourierClient, Failed, FRAMINGS
from courier_types import STRING, encode

CLOSED, SILENT = "closed", "silent"

TID = 0x1234

DEEP = 16000
"""How deep the recursive values of the cases are. They still fit into a datagram."""


def reject(reason):
    return f"reject {REASONS[reason]}"


def described(message):
    """Describes a message that came back, in the words of the expectations."""
    if len(message) < 4 or len(message) % 2:
        return f"no message: {message[:64].hex()}"
    cells = [int.from_bytes(message[at : at + 2], "big") for at in range(0, len(message), 2)]
    kind, tid = cells[0], cells[1]
    echo = "" if tid == TID else f" to another call: {tid}"
    if kind == RETURN:
        return "return" + echo
    if kind in (REJECT, ABORT) and len(cells) > 2:
        found = f"reject {REASONS.get(cells[2], cells[2])}" if kind == REJECT else f"abort {cells[2]}"
        if kind == REJECT and cells[2] == NO_SUCH_VERSION:
            found += f" {cells[3:]}"
        return found + echo
    return f"no reply: {message[:64].hex()}"


def call_of(program, number):
    high, low = program.number >> 16, program.number & 0xFFFF
    return words(CALL, TID, high, low, program.version, number)


def arguments(program, name, *cells):
    """Returns a call whose arguments are any words."""
    procedure = program.find(name)
    return call_of(program, procedure.number) + words(*cells)


def message_cases(program):
    """Yields name, message and what may come back. These hold for every carrier of the standard."""
    high, low, version = program.number >> 16, program.number & 0xFFFF, program.version
    refused = [reject(INVALID_ARGUMENT)]
    other = words(CALL, TID, high ^ 1, low, version, 0)
    yield "unknown program", other, [reject(NO_SUCH_PROGRAM)]
    versions = [f"{reject(NO_SUCH_VERSION)} {[version, version]}"]
    for name, wrong in (("version too high", version + 1), ("version too low", version - 1)):
        yield name, words(CALL, TID, high, low, wrong, 0), versions
    yield "unknown procedure", call_of(program, 999), [reject(NO_SUCH_PROCEDURE)]
    # Two faults: the server checks the program first, then the version, then the procedure.
    yield "unknown program and procedure", words(CALL, TID, high ^ 1, low, 9, 999), [reject(NO_SUCH_PROGRAM)]
    yield "wrong version and unknown procedure", words(CALL, TID, high, low, version + 1, 999), versions
    for kind in (REJECT, RETURN, ABORT, 4, 0xFFFF):
        yield f"a message of type {kind}", words(kind, TID, 0, 0, 0, 0), [
            reject(UNSPECIFIED_ERROR), CLOSED, SILENT,
        ]
    header = call_of(program, 0)
    for size in range(2, 12, 2):
        # The message ends, so it may be refused or may be an error of the protocol.
        yield f"a call of {size} bytes", header[:size], [
            CLOSED, SILENT, *refused, reject(UNSPECIFIED_ERROR),
        ]
    yield "half a word after a call", header + b"\0", [CLOSED, SILENT, *refused]
    yield "a word too many", arguments(program, "Nothing", 7), refused
    yield "an argument too few", arguments(program, "Add", 0, 1), refused
    yield "half a LONG CARDINAL", arguments(program, "EchoLongCardinal", 1), refused
    yield "BOOLEAN 2", arguments(program, "EchoBoolean", 2), refused
    yield "unknown tag", arguments(program, "EchoColour", 1), refused
    yield "unknown designator", arguments(program, "EchoChoice", 3), refused
    yield "CHOICE without an arm", arguments(program, "EchoChoice", 1), refused
    yield "STRING without bytes", arguments(program, "EchoString", 0xFFFF), refused
    yield "STRING without its last byte", arguments(program, "EchoString", 5, 0x6162, 0x6364), refused
    # The byte after an odd count is ignored.
    yield "STRING with a padding byte of 255", arguments(program, "EchoString", 1, 0x61FF), ["return"]
    yield "SEQUENCE without elements", arguments(program, "EchoSequence", 0xFFFF, 0, 1), refused
    yield "SEQUENCE above its bound", arguments(program, "EchoBounded", 5, *[0] * 5), refused
    empties = arguments(program, "EchoEmpties", 0xFFFF)
    yield "65535 elements without words", empties, ["return", *refused]
    many = arguments(program, "EchoTree", 0, 0xFFFF, *[0, 0xFFFF] * 300)
    yield "counts within counts", many, refused
    # A server may ignore datagrams that are longer than a packet.
    refused = [*refused, SILENT]
    nested = ["return", *refused]
    yield "a deep tree", arguments(program, "EchoTree", *[1, 1] * DEEP, 1, 0), nested
    yield "a deep tree without end", arguments(program, "EchoTree", *[1, 1] * DEEP), refused
    yield "a long list", arguments(program, "EchoList", *[1, 5] * DEEP, 0), nested
    yield "a long list without end", arguments(program, "EchoList", *[1, 5] * DEEP), refused
    segments = arguments(program, "EchoStream", *[0, 0] * DEEP)
    yield "a stream of many segments", segments + words(1, 0), nested
    yield "a stream without end", segments, refused


def stream_cases(carrier, program):
    """Yields name, bytes of the connection, and what may come back."""
    call = arguments(program, "Nothing")

    def framed(*messages):
        recorder = Recorder()
        for message in messages:
            FRAMINGS[carrier](recorder, None).send(message)
        return bytes(recorder.data)

    spoken = words(3, 3)
    for name, message, expected in message_cases(program):
        yield name, framed(spoken + message), [one for one in expected if one != SILENT]
    yield "versions and call in two messages", framed(spoken, call), ["return"]
    yield "versions 2 to 3", framed(words(2, 3) + call), ["return"]
    yield "versions 3 to 65535", framed(words(3, 0xFFFF) + call), ["return"]
    for low, high in ((2, 2), (4, 9), (5, 3), (0, 0)):
        yield f"versions {low} to {high}", framed(words(low, high) + call), [CLOSED]
    yield "half of the versions", framed(words(3)), [CLOSED]
    yield "nothing", b"", [CLOSED]
    whole = framed(spoken + call)
    for size in (1, 3, 5, len(whole) - 1):
        yield f"the first {size} bytes", whole[:size], [CLOSED]
    if carrier == "tcp-rm":
        yield "a record of 2 GiB", b"\xff\xff\xff\xff" + spoken + call, [CLOSED]
        yield "records of 1 GiB", b"\x40\x00\x00\x00" + spoken + call, [CLOSED]
        body = spoken + call
        single = b"".join(b"\0\0\0\1" + body[at : at + 1] for at in range(len(body)))
        yield "fragments of one byte", single + b"\x80\0\0\0", ["return"]
        yield "empty fragments", b"\0\0\0\0" * 3 + whole, ["return"]
        yield "only empty fragments", b"\0\0\0\0" * 100000, [CLOSED]
        yield "an empty record after the versions", framed(spoken, b""), [CLOSED, reject(UNSPECIFIED_ERROR)]
    else:
        body = spoken + call
        single = b"".join(b"\0\0\0\1" + body[at : at + 1] for at in range(len(body)))
        yield "frames of one byte", single + b"\0\1\0\0", ["return"]
        yield "empty frames", b"\0\0\0\0" * 3 + whole, ["return"]
        yield "only empty frames", b"\0\0\0\0" * 100000, [CLOSED]
        yield "an attention before a call", b"\0\2\0\1\1" + whole, ["return", CLOSED]
        yield "a long attention", b"\0\2\0\2\1\1" + whole, [CLOSED]
        yield "unknown flags", b"\0\x80\0\0" + whole, [CLOSED]
        yield "unknown datastream type", b"\7\1\0\0" + whole, [CLOSED]
        yield "bulk data that no call asked for", b"\1\1\0\0" + whole, [CLOSED]
        yield "a frame without its data", b"\0\1\xff\xff" + body, [CLOSED]
        yield "END", framed(spoken) + b"\xfe\0\0\0", ["end reply"]
        yield "END within a message", b"\0\0\0\4" + spoken + b"\xfe\0\0\0", [CLOSED]
        yield "END-REPLY without END", framed(spoken) + b"\xff\0\0\0", [CLOSED]


def cooper_cases(program):
    """Yields name, bytes of the connection, and what may come back after the activation."""
    name = encode(STRING, program.name)
    add = program.find("Add").number
    text = program.find("EchoString").number
    sums = words(2, 0, 3).hex()
    unknown = "text Unknown Courier program."
    yield "unknown name", encode(STRING, "Unknown"), [unknown]
    yield "a path as name", encode(STRING, "/bin/sh"), [unknown]
    yield "a hidden file as name", encode(STRING, ".."), [unknown]
    yield "an empty name", encode(STRING, ""), [unknown]
    yield "half a name", words(7, 0x496E), [CLOSED]
    yield "a long name without bytes", words(0xFFFF), [CLOSED]
    yield "only the name", name, ["activated"]
    yield "half a procedure number", name + b"\0", ["activated"]
    yield "an unknown procedure", name + words(999, 0), ["activated"]
    yield "an unknown procedure before a call", name + words(999, 1, 5, add, 4, 0, 1, 0, 2), [
        f"activated {sums}",
    ]
    yield "too few words", name + words(add, 4, 0, 1), ["activated"]
    yield "too few arguments", name + words(add, 2, 0, 1), ["activated"]
    yield "too many arguments", name + words(add, 5, 0, 1, 0, 2, 0), ["activated"]
    yield "STRING without bytes", name + words(text, 1, 0xFFFF), ["activated"]
    # A call without results has no reply, although its arguments are wrong.
    note = program.find("Note").number
    yield "a wrong note before a call", name + words(note, 1, 9, add, 4, 0, 1, 0, 2), [f"activated {sums}"]


class Recorder:
    """Takes the place of a socket, to learn the bytes of a framing."""

    def __init__(self):
        self.data = bytearray()

    def sendall(self, data):
        self.data += data


def everything(address, sent, limit_s):
    """Sends bytes, half-closes the connection, and returns all that arrives before its end."""
    received = bytearray()
    with socket.create_connection(address, limit_s) as sock:
        # The peer may close the connection before it has read everything.
        with contextlib.suppress(ConnectionError):
            sock.sendall(sent)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        try:
            while some := sock.recv(1 << 16):
                received += some
        except ConnectionError:
            pass
        except TimeoutError:
            return received, True
    return received, False


class Replay:
    """Takes the place of a socket, to read bytes that have arrived before."""

    def __init__(self, data):
        self.data = bytes(data)

    def recv(self, size):
        some, self.data = self.data[:size], self.data[size:]
        return some

    def sendall(self, data):
        """Nothing can be sent."""


def stream_answer(carrier, received):
    """Describes what arrived on a connection, without the versions of the server."""
    replay = Replay(received)
    framing = FRAMINGS[carrier](replay, None)
    found, is_first = [], True
    try:
        while replay.data:
            if carrier == "tcp-spp" and replay.data[0] == 255:
                replay.data = replay.data[4:]
                found.append("end reply")
                continue
            message = framing.receive()
            if message is None:
                break
            if is_first:
                message, is_first = message[4:], False
                if not message:
                    continue
            found.append(described(message))
    except Malformed as error:
        found.append(f"malformed: {error}")
    return " and ".join(found) or CLOSED


def cooper_answer(received):
    text, zero, rest = bytes(received).partition(b"\0")
    if not received:
        return CLOSED
    if text or not zero:
        return "text " + text.decode(errors="replace")
    return "activated" + (f" {rest.hex()}" if rest else "")


def run_streams(carrier, program, address, limit_s):
    is_cooper = carrier == "cooper"
    for name, sent, expected in cooper_cases(program) if is_cooper else stream_cases(carrier, program):
        try:
            received, is_hanging = everything(address, sent, limit_s)
        except OSError as error:
            yield name, expected, f"cannot connect: {error}"
            return
        got = cooper_answer(received) if is_cooper else stream_answer(carrier, received)
        yield name, expected, got + " and hangs" if is_hanging else got


def run_datagrams(program, address, limit_s):
    identifier = 0x10000000
    cases = [
        (name, words(CLIENT_TYPE, 3, 3) + message, expected)
        for name, message, expected in message_cases(program)
    ]
    call = arguments(program, "Nothing")
    cases += [("nothing", b"", [SILENT]), ("only a client type", words(CLIENT_TYPE), [SILENT])]
    cases += [("no message", words(CLIENT_TYPE, 3, 3), [SILENT])]
    cases += [("versions 2 to 3", words(CLIENT_TYPE, 2, 3) + call, ["return"])]
    for low, high in ((2, 2), (4, 9), (5, 3)):
        cases.append((f"versions {low} to {high}", words(CLIENT_TYPE, low, high) + call, [SILENT]))
    with DatagramClient(program, address, limit_s) as client:
        for name, body, expected in cases:
            identifier += 1
            sent = identifier.to_bytes(4, "big") + body
            if len(sent) > DATAGRAM_MAX:
                yield name, expected, "too long to be sent"
                continue
            try:
                if SILENT not in expected:
                    yield name, expected, described(client.exchange(sent))
                    continue
                heard = Listening(client.sock, sent[:4])
                client.sock.send(sent)
                client.sock, replaced = heard, client.sock
                client.call("Nothing", {})
                client.sock = replaced
                yield name, expected, " and ".join(heard.found) or SILENT
            except (Failed, Malformed, OSError) as error:
                yield name, expected, str(error)
                return


class Listening:
    """A socket that notes the replies to one identifier before it passes everything on."""

    def __init__(self, sock, identifier):
        self.sock, self.identifier, self.found = sock, identifier, []

    def send(self, data):
        return self.sock.send(data)

    def settimeout(self, limit_s):
        self.sock.settimeout(limit_s)

    def recv(self, size):
        data = self.sock.recv(size)
        if data[:4] == self.identifier:
            self.found.append(described(data[HEADER:]))
        return data


def healthy(carrier, program, address, limit_s):
    """Calls a procedure. Returns whether the server still serves."""
    try:
        if carrier == "udp":
            client = DatagramClient(program, address, limit_s)
        elif carrier == "cooper":
            client = CooperClient(program, address, limit_s)
        else:
            client = CourierClient(carrier, program, address, limit_s)
        with client:
            return client.call("Add", {"a": 1, "b": 2}) == {"sum": 3}
    except (OSError, Failed):
        return False


def run_all(carrier, program, address, limit_s=30):
    """Yields a description of each case, and at last whether the server still serves."""
    runs = run_datagrams(program, address, limit_s) if carrier == "udp" else run_streams(
        carrier, program, address, limit_s
    )
    for name, expected, got in runs:
        yield {"case": name, "expected": expected, "got": got, "ok": got in expected}
    serves = healthy(carrier, program, address, limit_s)
    got = "return" if serves else "no result"
    yield {"case": "a correct call after all others", "expected": ["return"], "got": got, "ok": serves}
