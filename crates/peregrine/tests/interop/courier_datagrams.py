"""Packet Courier over UDP: each call is one datagram, and so is its reply.

A datagram has an identifier (4 bytes), a client type (2 bytes), the lowest and the highest version that
its sender speaks, and a message. The identifier and the client type are those of the Packet Exchange
Protocol. A client sends a call again until the reply has arrived. A server keeps its replies, so it
runs no call twice, and sends a reply again for each duplicate.
"""

import collections
import contextlib
import random
import selectors
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from courier_messages import (
    Malformed, Rejected, SPOKEN, UNSPECIFIED_ERROR, is_version_3, outcome, pair, words,
)
from courier_streams import Failed

DATAGRAM_MAX = 65507
"""The bytes of the longest datagram that UDP carries over IPv4."""

HEADER = 10

CLIENT_TYPE = 2
"""The client type of expedited Courier. A server returns the type that it received."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 2.0
"""How long a client waits for a reply before it sends a call again. The time doubles."""

KEPT_S = 60
"""How long a server keeps a reply. It is longer than a client sends its call again."""

KEPT_MAX, KEPT_BYTES_MAX = 4096, 1 << 24

RUNNING_MAX = 1024
"""How many calls run or wait for a thread. A server ignores more; their clients send them again."""

THREADS = 16


def datagram(identifier, kind, message, spoken=SPOKEN):
    return identifier.to_bytes(4, "big") + words(kind, *spoken) + message


class DatagramClient:
    """A client that makes one call at a time. `duplicates` sends every datagram several times."""

    def __init__(self, program, address, limit_s=30, spoken=SPOKEN, duplicates=1):
        self.program, self.limit_s, self.spoken, self.duplicates = program, limit_s, spoken, duplicates
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.connect(address)
        # A restarted client must not use the identifiers of its last run.
        self.identifier = random.getrandbits(32)
        self.lock = threading.Lock()

    def call(self, name, arguments):
        """Calls a procedure. Returns the results, or raises `Rejected`, `Aborted` or `Failed`."""
        procedure = self.program.find(name)
        with self.lock:
            self.identifier = (self.identifier + 1) & 0xFFFFFFFF
            tid = self.identifier & 0xFFFF
            message = self.program.call(procedure, tid, arguments)
            sent = datagram(self.identifier, CLIENT_TYPE, message, self.spoken)
            if len(sent) > DATAGRAM_MAX:
                raise Failed("the arguments do not fit into one datagram", "no")
            try:
                return outcome(procedure, tid, self.exchange(sent))
            except (OSError, Malformed) as error:
                raise Failed(str(error), "maybe") from error

    def exchange(self, sent):
        """Sends a call until its reply arrives. Returns the message of the reply."""
        end, wait = time.monotonic() + self.limit_s, FIRST_WAIT_S
        while (now := time.monotonic()) < end:
            for _ in range(self.duplicates):
                self.sock.send(sent)
            again = min(now + wait, end)
            while (left := again - time.monotonic()) > 0:
                self.sock.settimeout(left)
                try:
                    received = self.sock.recv(DATAGRAM_MAX)
                except TimeoutError:
                    break
                # Anything else is a late reply to an earlier call.
                if len(received) >= HEADER and received[:6] == sent[:6]:
                    theirs = pair(received[6:])
                    if not is_version_3(self.spoken, theirs):
                        raise Malformed(f"the server speaks versions {theirs[0]} to {theirs[1]}")
                    return received[HEADER:]
            wait = min(2 * wait, LONGEST_WAIT_S)
        raise Malformed("the server did not reply in time")

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Replies:
    """The calls that a server runs, and the replies that it has sent."""

    def __init__(self):
        self.running = set()
        self.kept = collections.OrderedDict()
        self.bytes = 0

    def admit(self, key):
        """Returns whether a call is new and may run, and the reply if one was sent already."""
        if key in self.kept:
            return False, self.kept[key][0]
        if key in self.running or len(self.running) == RUNNING_MAX:
            return False, None
        self.running.add(key)
        return True, None

    def keep(self, key, reply):
        """Keeps a reply, and forgets the oldest ones if they are old or too many."""
        now = time.monotonic()
        self.running.remove(key)
        self.kept[key] = (reply, now)
        self.bytes += len(reply)
        while self.is_oldest_due(now):
            _, (reply, _) = self.kept.popitem(last=False)
            self.bytes -= len(reply)

    def is_oldest_due(self, now):
        if len(self.kept) > KEPT_MAX or self.bytes > KEPT_BYTES_MAX:
            return True
        return next(iter(self.kept.values()))[1] < now - KEPT_S


class DatagramServer:
    """A server whose procedures run on a bounded number of threads.

    It ignores the first `lose_calls` datagrams and does not send its first `lose_replies` replies, so a
    test sees that clients send calls again and that no call runs twice.
    """

    def __init__(self, program, log, host="127.0.0.1", port=0, spoken=SPOKEN, lose_calls=0,
                 lose_replies=0):
        self.program, self.log, self.spoken = program, log, spoken
        self.lose_calls, self.lose_replies = lose_calls, lose_replies
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((host, port))
        self.port = self.sock.getsockname()[1]
        self.wake, self.woken = socket.socketpair()
        self.lock = threading.Lock()
        self.replies = Replies()
        self.pool = ThreadPoolExecutor(THREADS)
        self.receiver = threading.Thread(target=self.receive)
        self.receiver.start()

    def receive(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            selector.register(self.woken, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self.woken in ready:
                    return
                with contextlib.suppress(OSError):
                    self.take(*self.sock.recvfrom(DATAGRAM_MAX + 1))

    def take(self, received, peer):
        """Handles a datagram. What is no call gets no reply, because its sender may be forged."""
        if len(received) < HEADER or not is_version_3(self.spoken, pair(received[6:])):
            return
        if self.lose_calls:
            self.lose_calls -= 1
            return
        key = (peer, received[:6])
        with self.lock:
            is_new, reply = self.replies.admit(key)
        if is_new:
            self.pool.submit(self.run, key, received[HEADER:])
        elif reply is not None:
            self.send(reply, peer)

    def run(self, key, message):
        peer, start = key
        identifier, kind = int.from_bytes(start[:4], "big"), int.from_bytes(start[4:], "big")
        try:
            reply, record, _ = self.program.serve(message)
            if HEADER + len(reply) > DATAGRAM_MAX:
                refusal = Rejected(UNSPECIFIED_ERROR)
                reply, record = refusal.message(record["tid"]), record | refusal.described()
        except Malformed:
            # The empty reply marks a datagram that gets none, so its duplicates are ignored too.
            reply, record = None, None
        sent = b"" if reply is None else datagram(identifier, kind, reply, self.spoken)
        with self.lock:
            self.replies.keep(key, sent)
        if record is not None:
            self.log(record)
        self.send(sent, peer)

    def send(self, sent, peer):
        with self.lock:
            if not sent:
                return
            if self.lose_replies:
                self.lose_replies -= 1
                return
        with contextlib.suppress(OSError):
            self.sock.sendto(sent, peer)

    def stop(self):
        """Waits for the threads. Running procedures end first."""
        self.wake.send(b"\0")
        self.receiver.join()
        self.pool.shutdown()
        for sock in (self.sock, self.wake, self.woken):
            sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
