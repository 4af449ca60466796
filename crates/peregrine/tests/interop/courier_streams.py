"""Courier over TCP: messages in ONC records (`tcp-rm`) or in SPP frames (`tcp-spp`), and Cooper's form.

In the first two, each side sends the lowest and the highest version of the protocol that it speaks,
once, before its first message. Cooper's form has neither versions nor message types.
"""

import contextlib
import selectors
import socket
import threading

from courier_messages import (
    Malformed, Rejected, Aborted, SPOKEN, is_version_3, outcome, pair, run, words,
)
from courier_types import Invalid, Reader, STRING, decode, encode, plain

MESSAGE_MAX = 1 << 22
"""The bytes of the longest message that is read."""

EMPTY_FRAGMENTS_MAX = 1024
"""How many fragments without data one message may have."""

IDLE_S = 90
"""How long a server waits for the next bytes of a connection, in seconds. BSD waits as long."""

NAME_S = 60
"""How long a Cooper server waits for the name of the program, in seconds."""

CONNECTIONS_MAX = 64

RECEIVE = 1 << 16
"""The bytes that one receive asks for. Memory grows only as bytes arrive."""

UNKNOWN_PROGRAM = b"Unknown Courier program."


class Failed(Exception):
    """A call has no outcome. `executed` is "no" if the server certainly did not run it."""

    def __init__(self, why, executed):
        super().__init__(why)
        self.executed = executed

    def described(self):
        return {"outcome": "failed", "why": str(self), "executed": self.executed}


class Input:
    """The bytes that arrive at a socket."""

    def __init__(self, sock):
        self.sock = sock

    def exactly(self, size, may_end=False):
        """Returns `size` bytes. With `may_end`, it returns `None` if the peer has closed before them."""
        data = bytearray()
        while len(data) < size:
            some = self.sock.recv(min(size - len(data), RECEIVE))
            if not some:
                if may_end and not data:
                    return None
                raise Malformed("the peer closed the connection within a message")
            data += some
        return bytes(data)


class Records:
    """ONC record marking: each fragment begins with its length; the highest bit marks the last one."""

    def __init__(self, sock, chunk):
        self.sock, self.input, self.chunk = sock, Input(sock), chunk or 0x7FFFFFFF

    def send(self, message):
        frames = bytearray()
        for at in range(0, len(message) or 1, self.chunk):
            fragment = message[at : at + self.chunk]
            last = at + self.chunk >= len(message)
            frames += (last << 31 | len(fragment)).to_bytes(4, "big") + fragment
        self.sock.sendall(frames)

    def receive(self):
        """Returns a message, or `None` if the peer has closed at the end of one."""
        message, empty = bytearray(), 0
        header = self.input.exactly(4, may_end=True)
        if header is None:
            return None
        while True:
            mark = int.from_bytes(header, "big")
            last, size = mark >> 31, mark & 0x7FFFFFFF
            if len(message) + size > MESSAGE_MAX:
                raise Malformed("the message is too long")
            empty += size == 0
            if empty > EMPTY_FRAGMENTS_MAX:
                raise Malformed("the message has too many empty fragments")
            message += self.input.exactly(size)
            if last:
                return bytes(message)
            header = self.input.exactly(4)

    def finish(self):
        """Nothing is sent before the connection is closed."""


class Frames:
    """Frames that replace packets of SPP: datastream type, flags, length of the data (16 bits), data.

    There is no bulk data here, because the test program has no parameter of that kind.
    """

    MESSAGES, END, END_REPLY = 0, 254, 255
    END_OF_MESSAGE, ATTENTION = 1, 2

    def __init__(self, sock, chunk):
        self.sock, self.input, self.chunk = sock, Input(sock), min(chunk or 0xFFFF, 0xFFFF)

    def frame(self, kind, flags, data=b""):
        return bytes([kind, flags]) + len(data).to_bytes(2, "big") + data

    def send(self, message):
        frames = bytearray()
        for at in range(0, len(message) or 1, self.chunk):
            last = at + self.chunk >= len(message)
            flags = self.END_OF_MESSAGE if last else 0
            frames += self.frame(self.MESSAGES, flags, message[at : at + self.chunk])
        self.sock.sendall(frames)

    def read(self, may_end):
        """Returns the next frame: kind, flags and data. It returns `None` at the end."""
        header = self.input.exactly(4, may_end)
        if header is None:
            return None
        kind, flags = header[0], header[1]
        if flags & ~(self.END_OF_MESSAGE | self.ATTENTION):
            raise Malformed(f"the flags {flags:#x} of a frame are not known")
        return kind, flags, self.input.exactly(int.from_bytes(header[2:], "big"))

    def receive(self):
        """Returns a message, or `None` after the peer has closed or has sent END."""
        message, empty, begun = bytearray(), 0, False
        while True:
            found = self.read(may_end=not begun)
            if found is None:
                return None
            kind, flags, data = found
            if flags & self.ATTENTION:
                # An attention asks a sender of bulk data to stop. There is no such sender here.
                if len(data) != 1:
                    raise Malformed("an attention does not have one byte")
                continue
            if kind == self.END and not begun and not data:
                self.sock.sendall(self.frame(self.END_REPLY, 0))
                return None
            if kind != self.MESSAGES:
                raise Malformed(f"a frame of datastream type {kind} is not expected")
            begun = True
            if len(message) + len(data) > MESSAGE_MAX:
                raise Malformed("the message is too long")
            empty += not data
            if empty > EMPTY_FRAGMENTS_MAX:
                raise Malformed("the message has too many empty frames")
            message += data
            if flags & self.END_OF_MESSAGE:
                return bytes(message)

    def finish(self):
        """Tells the peer that no data follows, and waits for its answer or for the end."""
        self.sock.sendall(self.frame(self.END, 0))
        while (found := self.read(may_end=True)) is not None and found[0] != self.END_REPLY:
            pass


FRAMINGS = {"tcp-rm": Records, "tcp-spp": Frames}


class Connection:
    """Messages in both directions, and before the first ones the versions.

    `versions` says how this side sends its own: "separate", as one more message before all
    others; "joined", within the first message; "none", not at all, and then none is expected.
    This side accepts both of the first two from its peer.
    """

    def __init__(self, framing, versions, spoken=SPOKEN):
        self.framing, self.spoken = framing, spoken
        self.unsent = words(*spoken) if versions != "none" else b""
        self.agreed = versions == "none"
        self.theirs = None
        if versions == "separate":
            framing.send(self.unsent)
            self.unsent = b""

    def send(self, message):
        message, self.unsent = self.unsent + message, b""
        self.framing.send(message)

    def receive(self):
        message = self.framing.receive()
        if self.agreed or message is None:
            return message
        if len(message) < 4:
            raise Malformed("the first message is too short for two versions")
        self.theirs = pair(message)
        if not is_version_3(self.spoken, self.theirs):
            raise Malformed(f"the peer speaks versions {self.theirs[0]} to {self.theirs[1]}")
        self.agreed = True
        return message[4:] or self.framing.receive()

    def is_mismatch(self):
        return not self.agreed and self.theirs is not None


class Client:
    """A client whose connection carries one call at a time."""

    def __init__(self, program, sock):
        self.program, self.sock = program, sock
        self.lock = threading.Lock()
        self.broken = False

    def call(self, name, arguments):
        """Calls a procedure. Returns the results, or raises `Rejected`, `Aborted` or `Failed`."""
        procedure = self.program.find(name)
        with self.lock:
            if self.broken:
                raise Failed("an earlier call has broken the connection", "no")
            try:
                return self.exchange(procedure, arguments)
            except (OSError, Malformed) as error:
                self.broken = True
                is_late = isinstance(error, TimeoutError)
                why = "the server did not reply in time" if is_late else str(error)
                raise Failed(why, self.executed()) from error

    def executed(self):
        return "maybe"

    def close(self):
        """Ends the connection after the server has read everything, or after the time limit."""
        with contextlib.suppress(OSError, Malformed):
            if not self.broken:
                self.finish()
                self.sock.shutdown(socket.SHUT_WR)
                while self.sock.recv(RECEIVE):
                    pass
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class CourierClient(Client):
    def __init__(self, carrier, program, address, limit_s=30, versions="joined", chunk=None,
                 spoken=SPOKEN):
        super().__init__(program, socket.create_connection(address, limit_s))
        self.connection = Connection(FRAMINGS[carrier](self.sock, chunk), versions, spoken)
        self.tid = 0

    def exchange(self, procedure, arguments):
        tid = self.tid = (self.tid + 1) & 0xFFFF
        self.connection.send(self.program.call(procedure, tid, arguments))
        reply = self.connection.receive()
        if reply is None:
            raise Malformed("the server closed the connection instead of a reply")
        return outcome(procedure, tid, reply)

    def executed(self):
        # A server that speaks no common version cannot have read the call.
        return "no" if self.connection.is_mismatch() else "maybe"

    def finish(self):
        self.connection.framing.finish()


class CooperClient(Client):
    """The connection is activated with the name of the program. A call without results is one-way."""

    def __init__(self, program, address, limit_s=30, byte_booleans=False):
        super().__init__(program, socket.create_connection(address, limit_s))
        self.input, self.byte_booleans = Input(self.sock), byte_booleans
        try:
            self.activate()
        except (OSError, Malformed) as error:
            self.sock.close()
            raise Failed(f"cannot activate {program.name}: {error}", "no") from error

    def activate(self):
        self.sock.sendall(encode(STRING, self.program.name))
        text = bytearray()
        while (byte := self.input.exactly(1)) != b"\0":
            text += byte
            if len(text) > 1024:
                raise Malformed("the text of the server has no end")
        if text:
            raise Malformed(text.decode(errors="replace"))

    def exchange(self, procedure, arguments):
        body = encode(procedure.arguments, arguments, self.byte_booleans)
        if len(body) // 2 > 0xFFFF:
            raise Invalid("the arguments have more than 65535 words")
        self.sock.sendall(words(procedure.number, len(body) // 2) + body)
        if not procedure.results.fields:
            return None
        body = self.input.exactly(2 * int.from_bytes(self.input.exactly(2), "big"))
        try:
            return decode(procedure.results, body, self.byte_booleans)
        except Invalid as error:
            raise Malformed(str(error)) from None

    def finish(self):
        """Nothing is sent before the connection is closed."""


class StreamServer:
    """Accepts connections. Each is served by its own thread."""

    def __init__(self, serve, host="127.0.0.1", port=0):
        self.serve = serve
        self.listener = socket.create_server((host, port))
        self.port = self.listener.getsockname()[1]
        self.wake, self.woken = socket.socketpair()
        self.lock = threading.Lock()
        self.connections = {}
        self.stopping = False
        self.acceptor = threading.Thread(target=self.accept)
        self.acceptor.start()

    def accept(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            selector.register(self.woken, selectors.EVENT_READ)
            while True:
                selector.select()
                with self.lock:
                    if self.stopping:
                        return
                with contextlib.suppress(OSError):
                    self.admit(self.listener.accept()[0])

    def admit(self, sock):
        sock.settimeout(IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(target=self.run, args=(sock,))
        with self.lock:
            if self.stopping or len(self.connections) == CONNECTIONS_MAX:
                sock.close()
                return
            self.connections[sock] = thread
            thread.start()

    def run(self, sock):
        try:
            self.serve(sock)
        except (OSError, Malformed):
            pass
        finally:
            with self.lock:
                del self.connections[sock]
                sock.close()

    def stop(self):
        """Closes all connections and waits for the threads. Running procedures end first."""
        with self.lock:
            self.stopping = True
            threads = list(self.connections.values())
            for sock in self.connections:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        self.wake.send(b"\0")
        for thread in [self.acceptor, *threads]:
            thread.join()
        for sock in (self.listener, self.wake, self.woken):
            sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def courier_server(carrier, program, log, host="127.0.0.1", port=0, versions="separate", chunk=None,
                   spoken=SPOKEN):
    """Starts a server whose connections carry the messages of the standard."""

    def serve(sock):
        connection = Connection(FRAMINGS[carrier](sock, chunk), versions, spoken)
        while (message := connection.receive()) is not None:
            reply, record, usable = program.serve(message)
            log(record)
            connection.send(reply)
            if not usable:
                return

    return StreamServer(serve, host, port)


def cooper_server(program, log, host="127.0.0.1", port=0, byte_booleans=False):
    """Starts a server of Cooper's form."""

    def serve(sock):
        stream = Input(sock)
        if not activated(sock, stream, program.name):
            return
        sock.settimeout(IDLE_S)
        while (start := stream.exactly(2, may_end=True)) is not None:
            number = int.from_bytes(start, "big")
            body = stream.exactly(2 * int.from_bytes(stream.exactly(2), "big"))
            record = {"procedure": number}
            if number not in program.by_number:
                # Cooper's server says nothing. A client that waits for results needs a time limit.
                log(record | {"outcome": "unknown procedure"})
                continue
            procedure = program.by_number[number]
            record["procedure"] = procedure.name
            try:
                arguments = decode(procedure.arguments, body, byte_booleans)
                record["arguments"] = plain(arguments)
                results, encoded = run(procedure, arguments, byte_booleans)
                if len(encoded) // 2 > 0xFFFF:
                    raise Invalid("the results have more than 65535 words")
                log(record | {"outcome": "return", "results": plain(results)})
                if procedure.results.fields:
                    sock.sendall(words(len(encoded) // 2) + encoded)
            except (Invalid, Rejected, Aborted) as error:
                log(record | {"outcome": "failed", "why": str(error)})
                if procedure.results.fields:
                    # No message says that a call failed. At the end of the connection its caller
                    # stops waiting.
                    return

    return StreamServer(serve, host, port)


def activated(sock, stream, name):
    """Reads the name of the program that the client wants. Returns whether it is served here."""
    sock.settimeout(NAME_S)
    size = stream.exactly(2)
    count = int.from_bytes(size, "big")
    wanted = STRING.decode(Reader(size + stream.exactly(count + count % 2)))
    is_known = wanted == name.encode()
    sock.sendall(b"\0" if is_known else UNKNOWN_PROGRAM + b"\0")
    return is_known
