"""The messages of Courier version 3, the exchange of versions, and the procedures of a program.

Nothing here reads or writes a socket.
"""

from courier_types import Invalid, Reader, Record, decode, encode, plain

CALL, REJECT, RETURN, ABORT = range(4)

NO_SUCH_PROGRAM, NO_SUCH_VERSION, NO_SUCH_PROCEDURE, INVALID_ARGUMENT = range(4)
UNSPECIFIED_ERROR = 0xFFFF

REASONS = {
    NO_SUCH_PROGRAM: "noSuchProgramNumber",
    NO_SUCH_VERSION: "noSuchVersionNumber",
    NO_SUCH_PROCEDURE: "noSuchProcedureValue",
    INVALID_ARGUMENT: "invalidArgument",
    UNSPECIFIED_ERROR: "unspecifiedError",
}

SPOKEN = (3, 3)
"""The lowest and the highest version of the protocol that this implementation speaks. It can announce
others, for tests of its peers."""

HEADER = 12
"""The bytes of a call before its arguments."""


def words(*values):
    return b"".join(value.to_bytes(2, "big") for value in values)


def common_version(ours, theirs):
    """Returns the highest version that both ranges contain, or `None`."""
    low, high = max(ours[0], theirs[0]), min(ours[1], theirs[1])
    return high if low <= high else None


def is_version_3(ours, theirs):
    """Returns whether both sides use version 3. Messages of other versions are not implemented."""
    return common_version(ours, theirs) == 3


def pair(data):
    """Reads the lowest and the highest version from four bytes."""
    return int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")


class Rejected(Exception):
    """The call was rejected: its procedure did not run, or failed in a way that is not declared."""

    def __init__(self, reason, lowest=None, highest=None):
        self.reason, self.lowest, self.highest = reason, lowest, highest
        super().__init__(REASONS.get(reason, f"reason {reason}"))

    def message(self, tid):
        more = words(self.lowest, self.highest) if self.reason == NO_SUCH_VERSION else b""
        return words(REJECT, tid, self.reason) + more

    def described(self):
        found = {"outcome": "reject", "reason": str(self), "number": self.reason}
        if self.reason == NO_SUCH_VERSION:
            found |= {"lowest": self.lowest, "highest": self.highest}
        return found


class Aborted(Exception):
    """The procedure reported an error that its interface declares."""

    def __init__(self, error, arguments=None):
        self.error, self.arguments = error, arguments or {}
        super().__init__(error.name)

    def message(self, tid):
        return words(ABORT, tid, self.error.number) + encode(self.error.arguments, self.arguments)

    def described(self):
        return {
            "outcome": "abort",
            "error": self.error.name,
            "number": self.error.number,
            "error_arguments": plain(self.arguments),
        }


class Malformed(Exception):
    """The peer does not follow the protocol. The connection must be closed."""


class ErrorType:
    def __init__(self, name, number, *arguments):
        self.name, self.number, self.arguments = name, number, Record(*arguments)


class Procedure:
    """A procedure: `run` is called with the arguments by name and returns the results by name."""

    def __init__(self, name, number, arguments, results, run, reports=()):
        self.name, self.number, self.run = name, number, run
        self.arguments, self.results = Record(*arguments), Record(*results)
        self.reports = {error.number: error for error in reports}


class Program:
    """A program that a server exports and that a client calls."""

    def __init__(self, name, number, version, procedures):
        self.name, self.number, self.version = name, number, version
        self.by_number = {procedure.number: procedure for procedure in procedures}
        self.by_name = {procedure.name: procedure for procedure in procedures}

    def find(self, name):
        """Returns the procedure with a name or a number."""
        if str(name).isdigit():
            return self.by_number[int(name)]
        return self.by_name[name]

    def call(self, procedure, tid, arguments):
        """Returns the message that calls a procedure."""
        number, version = self.number, self.version
        header = words(CALL, tid, number >> 16, number & 0xFFFF, version, procedure.number)
        return header + encode(procedure.arguments, arguments)

    def serve(self, message):
        """Runs a call. Returns the reply, what to log, and whether the connection stays usable.

        Raises `Malformed` if the message is too short for a transaction identifier that a reply could
        echo, or for the other words of a call.
        """
        try:
            reader = Reader(message)
        except Invalid as error:
            raise Malformed(str(error)) from None
        if reader.words_left() < 2:
            raise Malformed("the message has no transaction identifier")
        kind, tid = reader.word(), reader.word()
        log = {"tid": tid}
        if kind != CALL:
            refusal = Rejected(UNSPECIFIED_ERROR)
            return refusal.message(tid), log | {"type": kind} | refusal.described(), False
        if reader.words_left() < 4:
            raise Malformed("the call ends before its arguments")
        program = reader.word() << 16 | reader.word()
        version, number = reader.word(), reader.word()
        log |= {"program": program, "version": version, "procedure": number}
        try:
            if program != self.number:
                raise Rejected(NO_SUCH_PROGRAM)
            if version != self.version:
                raise Rejected(NO_SUCH_VERSION, self.version, self.version)
            if number not in self.by_number:
                raise Rejected(NO_SUCH_PROCEDURE)
            procedure = self.by_number[number]
            log["procedure"] = procedure.name
            try:
                arguments = decode(procedure.arguments, message[HEADER:])
            except Invalid as error:
                log["why"] = str(error)
                raise Rejected(INVALID_ARGUMENT) from None
            log["arguments"] = plain(arguments)
            results, encoded = run(procedure, arguments)
            reply = words(RETURN, tid) + encoded
        except (Rejected, Aborted) as refusal:
            return refusal.message(tid), log | refusal.described(), True
        return reply, log | {"outcome": "return", "results": plain(results)}, True


def run(procedure, arguments, byte_booleans=False):
    """Runs a procedure. Returns its results, also as words.

    An error that the procedure does not report becomes a rejection, as at Berkeley.
    """
    try:
        results = procedure.run(**arguments) or {}
        return results, encode(procedure.results, results, byte_booleans)
    except Aborted as abort:
        if abort.error.number not in procedure.reports:
            raise Rejected(UNSPECIFIED_ERROR) from None
        raise
    except Rejected:
        raise
    except Exception:  # pylint: disable=broad-except
        raise Rejected(UNSPECIFIED_ERROR) from None


def outcome(procedure, tid, message):
    """Returns the results that a reply carries. Raises `Rejected`, `Aborted` or `Malformed`."""
    try:
        reader = Reader(message)
        kind, echo = reader.word(), reader.word()
        if echo != tid:
            raise Malformed(f"the reply is to call {echo}, not to call {tid}")
        if kind == RETURN:
            return decode(procedure.results, message[4:])
        number = reader.word()
        if kind == ABORT and number in procedure.reports:
            error = procedure.reports[number]
            raise Aborted(error, decode(error.arguments, message[6:]))
        if kind == ABORT:
            raise Malformed(f"{procedure.name} does not report an error {number}")
        if kind != REJECT:
            raise Malformed(f"a message of type {kind} is no reply")
        lowest = highest = None
        if number == NO_SUCH_VERSION:
            lowest, highest = reader.word(), reader.word()
        if reader.words_left():
            raise Malformed("words follow a rejection")
        raise Rejected(number, lowest, highest)
    except Invalid as error:
        raise Malformed(str(error)) from None
