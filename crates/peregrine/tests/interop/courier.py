#!/usr/bin/env python3
"""Serves and calls the Courier program of `Interop.cr`, and attacks servers of it. See README.md."""

import argparse
import json
import signal
import sys
import threading

import courier_hostile
from courier_datagrams import DatagramClient, DatagramServer
from courier_messages import Aborted, Rejected, SPOKEN
from courier_program import NUMBER, VERSION, Interop
from courier_streams import CooperClient, CourierClient, Failed, cooper_server, courier_server
from courier_types import Invalid, plain

CARRIERS = ("tcp-rm", "tcp-spp", "cooper", "udp")


def offered(text):
    """Reads a range of versions: `3`, or `2-3`."""
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve until standard input is closed")
    call = commands.add_parser("call", help="call a procedure and print its results")
    hostile = commands.add_parser("hostile", help="send malformed messages and print what comes back")
    for command in (serve, call, hostile):
        command.add_argument("--carrier", choices=CARRIERS, required=True)
        command.add_argument("--host", default="127.0.0.1")
        command.add_argument("--program", type=int, default=NUMBER, help="the number of the program")
        command.add_argument("--version", type=int, default=VERSION, help="the version of the program")
    for command in (serve, call):
        command.add_argument("--speaks", type=offered, default=SPOKEN, metavar="LOW-HIGH",
                             help="the versions of the protocol that this side announces")
        command.add_argument("--chunk", type=int, help="the bytes of the longest fragment or frame sent")
        command.add_argument("--byte-booleans", action="store_true",
                             help="BOOLEAN as in Cooper's first header: the first byte of the word")
        command.add_argument("--versions", choices=("separate", "joined", "none"),
                             default="separate" if command is serve else "joined",
                             help="how this side sends the versions over tcp-rm and tcp-spp")
    for command in (call, hostile):
        command.add_argument("--port", type=int, required=True)
        command.add_argument("--limit", type=float, default=30, help="a time limit in seconds")
    serve.add_argument("--port", type=int, default=0)
    serve.add_argument("--lose-calls", type=int, default=0, help="ignore the first calls (udp)")
    serve.add_argument("--lose-replies", type=int, default=0, help="do not send the first replies (udp)")
    call.add_argument("--duplicates", type=int, default=1, help="how often each datagram is sent (udp)")
    call.add_argument("procedure", help="the name or the number of the procedure")
    call.add_argument("arguments", nargs="?", default="[]",
                      help="the arguments as JSON: an array in order, or an object by name")
    return parser.parse_args()


def show(value):
    print(json.dumps(value), flush=True)


def serving(given):
    interop = Interop()
    program = interop.program(given.program, given.version)
    lock = threading.Lock()

    def log(record):
        with lock:
            show(record)

    place = {"host": given.host, "port": given.port}
    if given.carrier == "udp":
        lost = {"lose_calls": given.lose_calls, "lose_replies": given.lose_replies}
        server = DatagramServer(program, log, **place, spoken=given.speaks, **lost)
    elif given.carrier == "cooper":
        server = cooper_server(program, log, **place, byte_booleans=given.byte_booleans)
    else:
        server = courier_server(given.carrier, program, log, **place, versions=given.versions,
                                chunk=given.chunk, spoken=given.speaks)
    with server:
        with lock:
            print(server.port, flush=True)
        try:
            sys.stdin.buffer.read()
        finally:
            interop.is_stopping.set()
    return 0


def connect(given, program):
    address = (given.host, given.port)
    if given.carrier == "udp":
        return DatagramClient(program, address, given.limit, given.speaks, given.duplicates)
    if given.carrier == "cooper":
        return CooperClient(program, address, given.limit, given.byte_booleans)
    return CourierClient(given.carrier, program, address, given.limit, given.versions, given.chunk,
                         given.speaks)


def calling(given):
    program = Interop().program(given.program, given.version)
    try:
        procedure = program.find(given.procedure)
        arguments = json.loads(given.arguments)
        if isinstance(arguments, list):
            names = [name for name, _ in procedure.arguments.fields]
            if len(names) != len(arguments):
                raise Invalid(f"{procedure.name} has the parameters {names}")
            arguments = dict(zip(names, arguments))
    except (KeyError, ValueError, Invalid) as error:
        print(f"cannot read the call: {error}", file=sys.stderr)
        return 2
    try:
        with connect(given, program) as client:
            results = client.call(given.procedure, arguments)
        show({"outcome": "return", "results": plain(results or {})})
        return 0
    except (Rejected, Aborted, Failed) as error:
        show(error.described())
        return 2 if isinstance(error, Failed) else 1
    except OSError as error:
        show(Failed(f"cannot connect: {error}", "no").described())
        return 2
    except Invalid as error:
        print(f"cannot encode the arguments: {error}", file=sys.stderr)
        return 2


def attacking(given):
    program = Interop().program(given.program, given.version)
    all_ok = True
    for found in courier_hostile.run_all(given.carrier, program, (given.host, given.port), given.limit):
        show(found)
        all_ok &= found["ok"]
    return 0 if all_ok else 1


def main():
    given = options()
    # A signal ends a server as the end of its input does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return {"serve": serving, "call": calling, "hostile": attacking}[given.command](given)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
